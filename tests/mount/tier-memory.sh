#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Memory of a mounted tier does not grow with the number of checkpoints that have open files.
. "$(dirname "$0")/lib.sh"
need_root
need_mount
! grep -q __asan_init "$CKPTFS_BUILD/fs/mount.ckptfs" || skip "memory means nothing with a sanitizer in it"

TIER=$WORK/tier
ANY=$WORK/any
READER= # the daemon of the tier
NR=200  # checkpoints, each with 1 MB of extended attributes
mkdir "$TIER" "$ANY"
at_end() {
	[ -z "$READER" ] || kill -KILL "$READER" 2>/dev/null || true
	while grep -qsF " $ANY fuse" /proc/mounts; do umount -l "$ANY" || break; done
}

fs_mount
"$PYTHON" - "$MNT" "$NR" <<'PY'
import os, sys
for i in range(int(sys.argv[2])):
    d = f"{sys.argv[1]}/step.{i}"
    os.mkdir(d)
    for k in range(16):
        with open(f"{d}/{k}", "w") as f:
            f.write(f"{i} {k}\n")
        os.setxattr(f"{d}/{k}", "user.large", os.urandom(60000))
PY
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT"/step.*
fs_umount
"$(program tier_fill)" "$STORE" "$TIER" >"$WORK/filled" || fail "cannot fill the tier"
[ "$(wc -l <"$WORK/filled")" = $NR ] || fail "not $NR checkpoints in the tier"

"$CKPTFS_BUILD/fs/mount.ckptfs" "dir:$TIER" "$ANY" --foreground -o cache=16M >"$WORK/daemon.log" 2>&1 &
READER=$!
await grep -qsF " $ANY fuse" /proc/mounts
await [ -e "$ANY/step.0" ]
"$PYTHON" - "$ANY" "$NR" "$READER" <<'PY' || fail "open files keep memory"
import os, resource, sys
top, nr, daemon = sys.argv[1], int(sys.argv[2]), sys.argv[3]
files = [os.open(f"{top}/step.{i}/3", os.O_RDONLY) for i in range(nr)]
dirs = [os.open(f"{top}/step.{i}", os.O_RDONLY | os.O_DIRECTORY) for i in range(nr)]
for i in range(nr):
    if os.pread(files[i], 100, 0) != b"%d 3\n" % i:
        sys.exit(f"step.{i}: other bytes")
    if sorted(os.listdir(dirs[i])) != sorted(map(str, range(16))):
        sys.exit(f"step.{i}: other names")
    if len(os.getxattr(files[i], "user.large")) != 60000:
        sys.exit(f"step.{i}: other attributes")
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(20000, most), max(20000, most)))
store, = os.listdir(f"{top}/.ckptfs/sealed")
for sealed in (top, f"{top}/.ckptfs/sealed/{store}"):
    dirs += [os.open(sealed, os.O_RDONLY | os.O_DIRECTORY) for _ in range(8000)]
    names = os.listdir(dirs[-1])
    if len(names) != nr or len(set(names)) != nr:
        sys.exit(f"{sealed}: other names")
with open(f"/proc/{daemon}/status") as f:
    peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) // 1024
print(f"{peak} MiB resident at most")
if peak > 16 + 64: # cache, and threads, libraries and requests in progress
    sys.exit("too much")
PY
"$CKPTFS_BUILD/tools/umount.ckptfs" "$ANY" || fail "cannot unmount the tier"
wait "$READER" || fail "the daemon of the tier ended with $?"
READER=
