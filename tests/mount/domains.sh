#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# dedup=user and dedup=group: users on one mount. What one has written is stored again for the other, by no way found; nothing
# tells whether another user has it. What is asked of a file is told to those that may read it.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setpriv getfattr
no_commit_timer

M=$((1 << 20))
as() { setpriv --reuid "$1" --regid "$2" --clear-groups "${@:3}"; } # UID GID COMMAND...
is() { [ "$1" = "$2" ] || fail "$3: $1 instead of $2"; }
put() { as "$1" "$2" sh -c 'cat >"$1" && sync "$1"' - "$MNT/$3"; } # UID GID NAME: from standard input
found() { # what was not stored because it was known, by any way
	figure written_by_cause.{previous,successor,memory,index,shifted}_bytes | awk '{ n += $1 } END { print n }'
}
known() { is "$(($(found) - before))" "$1" "bytes found"; } # BYTES: since `before` was taken
stores() { # BYTES WHAT COMMAND...: it brings so many bytes to the packs
	local was
	was=$(figure stored_bytes)
	"${@:3}"
	is "$(($(figure stored_bytes) - was))" "$1" "$2"
}

fs_mount dedup=user
chmod 1777 "$MNT"
noise 1 8 >"$WORK/noise"
chmod 644 "$WORK/noise"
before=$(found)
stores $((8 * M)) "the first" put 1001 2001 ckpt.1 <"$WORK/noise"
stores $((8 * M)) "another user, next in a series" put 1002 2001 ckpt.2 <"$WORK/noise"
known 0
stores 0 "the first user again" put 1001 2002 again <"$WORK/noise"
known $((8 * M))
echo "ok users share with themselves only"

# Zeros are holes for all users.
stores 0 "zeros" put 1002 2001 zeros < <(head -c "$M" /dev/zero)
stores 0 "zeros of another" put 1001 2001 zeros.too < <(head -c "$M" /dev/zero)

# Copies: by the kernel, that is with copy_file_range(2), they are bytes that are written; a clone is refused.
chmod 644 "$MNT/ckpt.1"
stores $((8 * M)) "a copy for another" as 1003 2003 sh -c 'cp "$1" "$2" && sync "$2"' - "$MNT/ckpt.1" "$MNT/copied"
cmp "$MNT/copied" "$WORK/noise"
cat >"$WORK/clone.py" <<'PY'
import errno, sys
import ckptfs
try:
    ckptfs.clone(sys.argv[1], sys.argv[2])
except OSError as e:
    sys.exit(errno.errorcode[e.errno])
PY
clone() { PYTHONPATH=$HERE/../../client/python as "$1" "$2" "$PYTHON" "$WORK/clone.py" "$MNT/$3" "$MNT/$4"; }
exits 1 clone 1002 2001 ckpt.1 cloned
says EXDEV
stores 0 "a clone of one's own" clone 1001 2001 ckpt.1 mine
cmp "$MNT/mine" "$WORK/noise"
echo "ok nothing is cloned across"

# Given away: its bytes are where they were, and readable; what is written is the new owner's.
chown 1002 "$MNT/again"
cmp "$MNT/again" "$WORK/noise"
stores 0 "the same over it: it is known to be his" put 1002 2001 again <"$WORK/noise"

# What can be asked of a file is for those that may read it; of the store, for root.
stat=$CKPTFS_BUILD/tools/ckptfs-stat
cp "$stat" "$CKPTFS_BUILD/tools/ckptfs-gc" "$CKPTFS_BUILD/tools/ckptfs-scrub" "$WORK/" # the build directory may be closed
chmod 600 "$MNT/ckpt.2"
exits 0 as 1002 2001 "$WORK/ckptfs-stat" --if-deleted --json "$MNT/ckpt.2"
exits 2 as 1001 2001 "$WORK/ckptfs-stat" --if-deleted --json "$MNT/ckpt.2"
says 'Permission denied'
exits 2 as 1001 2001 "$WORK/ckptfs-stat" --if-deleted --json "$MNT"
says 'Permission denied'
chmod 640 "$MNT/ckpt.2"
exits 0 as 1001 2001 "$WORK/ckptfs-stat" --if-deleted --json "$MNT/ckpt.2"
exits 2 as 1001 2002 "$WORK/ckptfs-stat" --if-deleted --json "$MNT/ckpt.2"
exits 0 setpriv --reuid 1001 --regid 2002 --groups 2001 "$WORK/ckptfs-stat" --if-deleted --json "$MNT/ckpt.2"
mkdir -m 744 "$MNT/shown" # names, but nothing else
put 0 0 shown/file <"$WORK/noise"
exits 2 as 1001 2001 "$WORK/ckptfs-stat" --if-deleted --json "$MNT/shown"
for name in stat fingerprint; do
	exits 0 as 1002 2001 getfattr -n user.ckptfs.$name "$MNT/ckpt.2"
	exits 1 as 1003 2003 getfattr -n user.ckptfs.$name "$MNT/ckpt.2"
	says 'Permission denied'
done
chmod 622 "$MNT/ckpt.2"
as 1001 2001 "$PYTHON" - "$HERE/../../client/python" "$MNT/ckpt.2" "$MNT" <<'PY'
import errno, fcntl, os, sys
sys.path.insert(0, sys.argv[1])
from ckptfs import _ioctl
fd = os.open(sys.argv[2], os.O_WRONLY)
for name, number in (("Stat", _ioctl.STAT), ("Handle", _ioctl.HANDLE)):
    try:
        _ioctl.call(fd, number, getattr(_ioctl, name)())
    except OSError as e:
        assert e.errno == errno.EBADF, (name, e)
    else:
        sys.exit(name + " of a file that may only be written")
PY
for command in "ckptfs-gc --delete" ckptfs-scrub; do
	exits 2 as 1001 2001 "$WORK/"$command --quiet "$MNT"
done
echo "ok what may not be read is not told of"

# How a store is made it stays.
fs_umount
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o dedup=group
says "made with dedup=user, which cannot be changed"
exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o dedup=everybody
says 'option dedup=everybody'
fs_mount
stores $((8 * M)) "after a remount without the option" put 1004 2001 later <"$WORK/noise"
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --quiet "$MNT" >"$WORK/out"
told=$("$CKPTFS_BUILD/tools/ckptfs-stat" --if-deleted --json "$MNT/later" | json exclusive_stored_bytes)
before=$(disk_kib "$STORE/packs")
rm "$MNT/later"
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --quiet "$MNT" >"$WORK/out"
freed=$((before - $(disk_kib "$STORE/packs")))
# A pack with holes may take a block more for its list of extents.
[ "$freed" -ge $(((told >> 10) - 8)) ] && [ "$freed" -le $(((told >> 10) + 8)) ] || fail "dedup=user: $told bytes were told, the disk got back $freed KiB"
fs_umount
exits 0 "$CKPTFS_BUILD/tools/fsck.ckptfs" -n --read-data "$STORE"

# Groups: of the file, not of its writer.
STORE=$WORK/groups
fs_mount dedup=group
chmod 1777 "$MNT"
mkdir -m 2777 "$MNT/project"
chgrp 2002 "$MNT/project"
stores $((8 * M)) "the first of a group" put 1001 2001 one <"$WORK/noise"
stores 0 "another of the group" put 1002 2001 two <"$WORK/noise"
stores $((8 * M)) "another group" put 1001 2002 three <"$WORK/noise"
stores 0 "in a directory of that group" put 1003 2001 project/four <"$WORK/noise"
echo "ok groups share with themselves only"
fs_umount

# The space of each user: a store that all share, so that exclusive space shows.
STORE=$WORK/shared
fs_mount
chmod 1777 "$MNT"
put 1001 2001 one <"$WORK/noise"
put 1002 2001 two < <(cat "$WORK/noise"; noise 2 2)
put 1002 2002 three < <(noise 3 1)
as 1002 2002 truncate -s $((5 * M)) "$MNT/three"
users() { # UID GID: the users that it lists, and their space
	as "$1" "$2" "$WORK/ckptfs-stat" --users --json "$MNT" | "$PYTHON" -c 'import json, sys
j = json.load(sys.stdin)
print(*(":".join(str(o[k] >> 20 if k.endswith("bytes") else o[k]) for k in ("id", "files", "size_bytes", "mapped_bytes", "exclusive_bytes"))
        for kind in ("users", "groups") for o in j[kind]))'
}
is "$(users 0 0)" "1001:1:8:8:0 1002:2:15:11:3 2001:2:18:18:10 2002:1:5:1:1" "users and groups, for root"
is "$(users 1001 2001)" "1001:1:8:8:0 2001:2:18:18:10" "users and groups, for one of them"
is "$(users 1003 2003)" "" "users and groups, for a user that has nothing"
rm "$MNT/one"
is "$(users 1002 2002)" "1002:2:15:11:11 2002:1:5:1:1" "users and groups, when one has deleted his"
exits 0 as 1002 2002 "$WORK/ckptfs-stat" --users "$MNT"
name=$(getent passwd 1002 | cut -d : -f 1) || true
tells "^user   ${name:-1002}  *2  *15 MiB  *11 MiB  *11 MiB  *11\(\.[0-9]*\)\? MiB$"
exits 1 "$WORK/ckptfs-stat" --users --prometheus "$MNT"
says 'with --json only'
echo "ok the space of each user"
fs_umount
