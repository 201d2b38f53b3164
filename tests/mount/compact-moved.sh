#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Steps of files of which nothing is known, or images of processes: pages are put in and taken out between them, so that files have other
# lengths and pages are elsewhere. Shared pages tell where; the others are coded against what they were before. Any step may go.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer
compact=$CKPTFS_BUILD/tools/ckptfs-compact

# Noise. With each step 23 pages are put in at a third of the file, 5 are taken out at two thirds, and of two pages of three 16 bytes change.
make_steps() { # DIRECTORY STEPS
	"$PYTHON" - "$@" <<-'END'
		import os, random, sys
		random.seed(4)
		page = 4096
		pages = [random.randbytes(page) for _ in range(768)]
		for step in range(int(sys.argv[2])):
		    if step > 0:
		        pages[256:256] = [random.randbytes(page) for _ in range(23)]
		        del pages[512:517]
		        for i in range(len(pages)):
		            if i % 24 < 16:
		                at = random.randrange(page - 16)
		                pages[i] = pages[i][:at] + random.randbytes(16) + pages[i][at + 16:]
		    os.makedirs(f"{sys.argv[1]}/step-{step}")
		    with open(f"{sys.argv[1]}/step-{step}/image", "wb") as f:
		        f.write(b"".join(pages))
	END
}
same() { diff -r "$WORK/steps" "$MNT/steps" || fail "$1: other bytes"; } # WHEN

make_steps "$WORK/steps" 4
fs_mount chunking=page
cp -r "$WORK/steps" "$MNT/"
sync "$MNT"/steps/*/*
before=$(disk_kib "$STORE/packs")
"$compact" --budget 1000 --json "$MNT/steps" >"$WORK/out" || fail "compact: $?"
after=$(disk_kib "$STORE/packs")
# 768 pages are new, and 3 times 23; of all others what has changed is left. Without that it is noise, and stays as it is.
[ "$after" -le $((before * 55 / 100)) ] || fail "of $before KiB $after are left: $(cat "$WORK/out")"
drop_caches
same compacted
fs_remount
same "mounted again"
for step in 3 1; do
	rm -r "$MNT/steps/step-$step" "$WORK/steps/step-$step"
	"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --move-below 95 --quiet "$MNT" >/dev/null
	drop_caches
	same "step $step collected"
done
fs_umount
fs_sound "all"
