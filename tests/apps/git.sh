#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# git: commits, a clone on the mount, gc, fsck, checkout back.
. "$(dirname "$0")/../mount/lib.sh"
need git

export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 HOME=$WORK

fs_mount
cd "$MNT"
git init -q -b main origin
cd origin
for i in $(seq 1 12); do
	mkdir -p "dir$((i % 4))"
	for f in $(seq 1 25); do
		seq "$i" "$((i * f))" >"dir$((i % 4))/file$f"
	done
	head -c $((i * 10000)) /dev/urandom >binary
	git add -A
	git commit -qm "commit $i"
done
cd "$MNT"
git clone -q --no-hardlinks origin copy
git clone -q origin linked # hard links
git -C copy fsck --full --strict 2>"$WORK/fsck" || fail "fsck: $(cat "$WORK/fsck")"
git -C linked fsck --full || fail "fsck of the linked clone"
git -C copy gc -q --aggressive --prune=now
git -C copy fsck --full || fail "fsck after gc"
git -C copy checkout -q HEAD~5
[ -z "$(git -C copy status --porcelain)" ] || fail "status is not clean"
before=$(git -C copy ls-tree -r HEAD | sha256sum)
cd /
fs_remount
cd "$MNT"
git -C copy fsck --full || fail "fsck after a remount"
[ "$(git -C copy ls-tree -r HEAD | sha256sum)" = "$before" ] || fail "another tree after a remount"
[ -z "$(git -C copy status --porcelain)" ] || fail "status is not clean after a remount"
git -C copy checkout -q main
diff -r --exclude=.git copy origin || fail "the clone differs"
cd /
fs_umount
