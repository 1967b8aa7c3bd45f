"""From trajectories to new weights: learner, batches, publishing, snapshots, warm start."""
