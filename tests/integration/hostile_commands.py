"""What an agent might do to a machine, by accident or to get out of it: 500 scripts.

`{secret}` is a file of the host, `{port}` a port on which the test itself listens on the host's loopback: the only
address that any of them reaches for.
"""

from __future__ import annotations

from agentrl.randomness import stream

FORK_BOMBS = (
    ":(){ :|:& };:",
    "f() { f & f & }; f",
    "while true; do sleep 600 & done",
    "for i in $(seq 5000); do (sleep 600 &) ; done",
    "printf '#!/bin/sh\\n$0 & $0 &\\n' > /tmp/b; chmod +x /tmp/b; /tmp/b & /tmp/b",
    "bash -c 'while :; do bash -c \"sleep 600\" & done' & disown; exit",
    "trap '' INT TERM HUP; :(){ :|:& };:",
)
FILLING = (
    "cat /dev/zero > /root/full",
    "i=0; while :; do i=$((i+1)); head -c 10000000 /dev/zero > /root/f$i; done",
    "i=0; while :; do i=$((i+1)); : > /root/empty$i; done",
    "i=0; while :; do mkdir d$i && cd d$i; i=$((i+1)); done",
    "fallocate -l 50G /root/huge; truncate -s 10T /root/sparse; ls -l /root",
    "cat /dev/zero > /dev/shm/full; cat /dev/zero > /tmp/full; cat /dev/zero > /dev/full",
    "yes > /var/log/syslog & yes > /var/tmp/x & wait",
    "ln -s /root/loop /root/loop; cat /root/loop; tar -cf /root/all.tar /",
)
MEMORY = (
    "tail /dev/zero",
    "x=a; while :; do x=$x$x; done",
    "head -c 2000000000 /dev/zero | sort",
    "a=(); while :; do a+=(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa); done",
    "awk 'BEGIN { while (1) a[i++] = \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" }'",
    "for i in 1 2 3 4 5 6; do tail /dev/zero & done; wait",
    "mkfifo p; (cat p | tail /dev/zero) & cat /dev/zero > p",
)
KILLING = (
    "kill -9 -1",
    "kill -1",
    "kill -9 1; kill -TERM 1; kill -STOP 1",
    "kill -9 $$",
    "kill -STOP $$",
    "kill -STOP -1",
    "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done",
    "while :; do kill -9 -1; done",
    "exec sleep 600",
    "exec 0<&- 1>&- 2>&-; sleep 600",
    "logout; exit 255",
    "echo o > /proc/sysrq-trigger; echo b > /proc/sysrq-trigger; reboot -f; shutdown now; halt -f",
)
ENDLESS = (
    "yes",
    "cat /dev/urandom",
    "cat /dev/zero",
    "while :; do echo -n x; done",
    "tail -f /dev/null",
    "sleep 100000",
    "while :; do :; done",
    "trap '' INT; while :; do :; done",
    "trap 'echo caught' INT TERM; while :; do sleep 1; done",
    "cat",
    "read x < /dev/tty",
    "cat /dev/tty",
    "seq 1 100000000",
    "find / -exec cat {} + ",
    "ping localhost || while sleep 1; do :; done",
    "(trap '' INT; exec sleep 600)",
)
BINARY = (
    "head -c 100000 /dev/urandom",
    "cat /bin/ls",
    "printf '\\000\\001\\002\\377\\376'",
    "printf '\\033[2J\\033[H\\033]0;title\\007\\033c\\0337'",
    "printf '\\036E:1:0\\036\\036E:2:0\\036\\036S:2\\036'",
    "printf '\\016\\017\\021\\023\\004\\003'",
    "stty -a < /dev/tty; stty raw -echo < /dev/tty; stty 0 < /dev/tty",
    "for i in $(seq 30); do printf '\\xc3\\x28\\xa0\\xa1'; done",
    "tput reset; clear; reset",
)
HOLDING = (
    "sleep 600 & exit",
    "(sleep 600 > /dev/tty 2>&1 < /dev/tty &) ; exit",
    "nohup yes > /dev/tty & disown",
    "setsid sh -c 'while :; do echo still here > /dev/tty; done' &",
    "while :; do echo noise; done & sleep 0.1; exit",
    "sleep 600 & sleep 600 & kill -9 $$",
    "(trap '' HUP INT TERM; while :; do sleep 1; done) & exec true",
    "exec 3> /dev/tty; sleep 600 >&3 & exit",
)
KERNEL = (
    "echo 1 > /proc/sys/kernel/panic; echo c > /proc/sysrq-trigger; echo x > /proc/sys/kernel/core_pattern",
    "echo '|/tmp/evil' > /proc/sys/kernel/core_pattern; kill -SEGV $$",
    "echo evil > /proc/sys/kernel/hostname; hostname evil; cat /proc/sys/kernel/hostname",
    "for f in $(find /proc/sys -type f | head -200); do echo 1 > $f; done 2> /dev/null; echo done",
    "find /sys -type f | head; for f in /sys/*; do echo 1 > $f; done",
    "mkdir /sys/fs/cgroup/evil; echo 1 > /sys/fs/cgroup/release_agent",
    "echo 1 > /proc/1/oom_score_adj; echo -1000 > /proc/self/oom_score_adj",
    "mount -t proc proc /mnt; mount -t sysfs s /mnt; mount --bind / /mnt; mount -o remount,rw /proc/sys",
    "umount -l /proc; umount -l /; umount -a; ls /proc | head -3",
    "unshare -r id; unshare -Urm mount -t tmpfs t /mnt; nsenter -t 1 -a id",
    "mknod /root/sda b 8 0; mknod /root/vda b 254 0; mknod /root/mem c 1 1; cat /root/vda | head -c 10; dd if=/root/mem count=1",
    "cat /dev/mem /dev/kmem /dev/vda /dev/sda /proc/kcore | head -c 100; ls -l /dev",
    "insmod /root/x.ko; modprobe loop; dmesg; sysctl -w kernel.panic=1; date -s 2001-01-01; hwclock -w",
    "chroot /proc/1/root ls /; chroot / id; pivot_root . .",
    "cat /proc/1/environ /proc/1/maps /proc/1/cmdline; ls -l /proc/1/root /proc/1/cwd /proc/1/exe /proc/1/fd",
    "gdb -p 1; strace -p 1; echo 0 > /proc/1/mem; dd if=/dev/zero of=/proc/1/mem bs=1 seek=4194424 count=8",
    "python3 -c 'import ctypes; l = ctypes.CDLL(None); print([l.syscall(n, 0, 0, 0) for n in (101, 155, 165, 246, 272, 308, 321, 425)])'",
    "setcap cap_sys_admin+ep /bin/bash; chmod u+s /bin/bash; capsh --print; /bin/bash -p -c id",
    "ulimit -u unlimited; ulimit -v unlimited; ulimit -n 10000000; prlimit --pid 1 --nproc=unlimited",
    "swapoff -a; swapon /root/x; quotaon -a; losetup -f /root/x; cryptsetup open x y",
)
HOST = (
    "cat {secret}; ls -la $(dirname {secret}); cp {secret} /root; ls /proc/*/root{secret}",
    "cat ../../../../../../../../{secret}; ls /../../../; cd /..; cat ./{secret}",
    "for p in /proc/[0-9]*; do cat $p/root{secret} $p/cwd/{secret}; done 2>&1 | tail -3",
    "for f in /proc/self/fd/* /proc/1/fd/*; do readlink $f; cat $f/{secret}; done < /dev/null 2>&1 | head -20",
    "find / -name $(basename {secret}) 2> /dev/null; grep -r host-secret / --include=* -l 2> /dev/null | head",
    "ln -s {secret} /root/link; cat /root/link; ln {secret} /root/hard; echo overwritten > {secret}; rm -f {secret}",
    "rm -rf --no-preserve-root / 2> /dev/null; echo gone",
    "chmod -R 000 /; chown -R 1000 /etc; mv /bin /nib; ls",
    "echo > /bin/bash; echo > /usr/bin/bash; rm -f /bin/* /usr/bin/*; echo gone",
    "mv /lib /bil; mv /usr/lib /usr/bil; rm -rf /lib64; ls",
    "echo 'exit 1' > /root/.bashrc; echo 'exit 1' > /root/.profile; echo 'exit 1' > /root/.bash_profile; exit",
    "cat /etc/shadow; cat /root/.ssh/id_rsa; cat /proc/mounts; cat /proc/self/mountinfo; env",
    "useradd -u 0 -o evil; echo 'evil::0:0::/:/bin/sh' >> /etc/passwd; su evil -c 'cat {secret}'",
)
NETWORK = (
    "exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected && cat <&3",
    "bash -c 'echo hello > /dev/tcp/127.0.0.1/{port}' && echo connected",
    "bash -c 'echo hello > /dev/udp/127.0.0.1/{port}'; cat /proc/net/tcp",
    "curl -m 2 http://127.0.0.1:{port}/ || wget -T 2 -O - http://127.0.0.1:{port}/",
    'python3 -c \'import socket; socket.create_connection(("127.0.0.1", {port}), 2); print("connected")\'',
    "python3 -c 'import socket; s = socket.socket(40, socket.SOCK_STREAM); print(s); s.connect((2, {port}))'",
    "python3 -c 'import socket; socket.socket(17, socket.SOCK_RAW)'",
    "ip link add dummy0 type dummy; ip link set lo down; ip addr add 127.0.0.2/8 dev lo; ip netns add x; ip a",
    "iptables -F; nft flush ruleset; route -n; cat /proc/net/route /proc/net/arp",
    "python3 -m http.server 80 & sleep 0.3; exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected",
)
DOCKER = (
    "ls -l /var/run/docker.sock /run/docker.sock /run/containerd; curl --unix-socket /var/run/docker.sock http://x/info",
    "docker ps; docker run -v /:/host alpine cat /host{secret}",
    "find / -type s 2> /dev/null; python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"/var/run/docker.sock\")'",
    "for s in $(cut -d ' ' -f 8 /proc/net/unix | sort -u); do echo $s; done | head",
)
FAMILIES = {
    "fork bomb": FORK_BOMBS, "filling": FILLING, "memory": MEMORY, "killing": KILLING, "endless": ENDLESS,
    "binary": BINARY, "holding": HOLDING, "kernel": KERNEL, "host": HOST, "network": NETWORK, "docker": DOCKER,
}  # fmt: skip
WRAPPERS = (
    "{}", "{} &", "( {} )", "{{ {}; }} 2>&1 | head -c 300", "nice -n -20 bash -c {!r}", "nohup bash -c {!r} > /dev/null 2>&1 &",
    "timeout 600 bash -c {!r}", "set -m; {}", "setsid bash -c {!r}", "echo $({})",
)  # fmt: skip


def scripts(count: int, secret: str, port: int, seed: int = 0) -> list[tuple[str, str]]:
    """`count` scripts with their families: every one as it stands, then in varied dress."""
    filled = [
        (family, script.replace("{secret}", secret).replace("{port}", str(port)))
        for family, members in FAMILIES.items()
        for script in members
    ]
    rng = stream(seed, "hostile")
    out = list(filled)
    while len(out) < count:
        family, script = rng.choice(filled)
        out.append((family, rng.choice(WRAPPERS[1:]).format(script)))
    return out[:count]
