"""Where an agent's commands run: a machine of its own that it may break.

`base` says what a sandbox offers; `namespaces` builds one from the kernel's namespaces without any daemon
(`launcher` is its helper process, made of `linux`, `seccomp` and `cgroups`); `docker` asks a Docker daemon for
one. `shell` keeps one login shell alive over a terminal, `files` carries files in and out, `rootfs` makes the
tree of files that a sandbox starts from.
"""
