"""Where episodes live: the controller, its sessions, and the client that agents speak to."""
