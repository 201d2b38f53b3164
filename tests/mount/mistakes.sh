#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Mistakes that users make, some with every program: each is answered by one line on standard error, which begins with the
# name of the program, says what is wrong and what to do, and does not end in the text of an errno that contradicts it. The
# exit status is one that --help documents, and nothing else happens.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

PATH=$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$CKPTFS_BUILD/mpi-agent:$PATH
nr=0
declare -A of # by program: its mistakes
wrong=0
# How a line says what to do: it gives a command or an option, or the values that are possible.
remedy='; |: use |must be |must have |must follow|must be given|is needed|needs |requires? |exclude each other|goes with|goes? on|such as|not a (whole )?number|from [0-9]|takes (no|one)|did you mean|is for |: give '
contradiction=': (Invalid argument|File exists|Inappropriate ioctl for device|Operation not supported|Bad message|Success|Is a directory|Not a directory|Transport endpoint is not connected)$'

# mistake STATUS REGEX COMMAND...
mistake() {
	local want=$1 regex=$2 code=0 name why=
	shift 2
	name=$1
	case $name in as_nobody | env | setpriv | unshare) for name; do case ${name##*/} in *ckptfs*) break ;; esac; done ;; esac
	name=${name##*/}
	"$@" >"$WORK/out" 2>"$WORK/said" </dev/null || code=$?
	nr=$((nr + 1))
	of[$name]=$((${of[$name]:-0} + 1))
	[ "$code" = "$want" ] || why+="; exit status $code instead of $want"
	[ "$(wc -l <"$WORK/said")" = 1 ] || why+="; $(wc -l <"$WORK/said") lines instead of one"
	[ ! -s "$WORK/out" ] || why+="; prints something on standard output"
	grep -Eq "^($name|ckptfs-[a-z-]*|fsck.ckptfs|[u]?mount.ckptfs)(\[[^]]*\])?: " "$WORK/said" || why+="; does not begin with the name of the program"
	grep -Eq -- "$regex" "$WORK/said" || why+="; does not say $regex"
	grep -Eq -- "$remedy" "$WORK/said" || why+="; does not say what to do"
	! grep -Eq -- "$contradiction" "$WORK/said" || why+="; ends in the text of an errno"
	documented "$name" "$want" || why+="; exit status $want is not documented"
	[ -n "$why" ] || return 0
	wrong=$((wrong + 1))
	echo "WRONG: ${*//$WORK/...}$why"
	sed "s,$WORK,...,g; s/^/    /" "$WORK/said"
}
documented() { # PROGRAM STATUS
	[ -e "$WORK/help.$1" ] || "$1" --help | sed -n '/^Exit status/,$p' | tr '\n' ' ' >"$WORK/help.$1"
	grep -Eq "[ :]$2[ ,]" "$WORK/help.$1"
}

no=$WORK/no # is not there
file=$WORK/file dir=$WORK/dir full=$WORK/full new=$WORK/new
mkdir "$dir" "$full"
echo x | tee "$file" >"$full/f"

# --- what is nowhere mounted ---
mistake 1 'STORE and MOUNTPOINT must be given' mount.ckptfs
mistake 1 'MOUNTPOINT must be given' mount.ckptfs "$STORE"
mistake 1 'too many arguments' mount.ckptfs a b c
mistake 1 'option cach: not known; did you mean cache[?] mount.ckptfs --help lists all' mount.ckptfs "$new" "$dir" -o cach=1G
mistake 1 'option notime: not known; did you mean noatime[?]' mount.ckptfs "$new" "$dir" -o notime
mistake 1 'option xyzzy: not known; mount.ckptfs --help lists all' mount.ckptfs "$new" "$dir" -o xyzzy
mistake 1 'option cache: needs a value' mount.ckptfs "$new" "$dir" -o cache
mistake 1 'option cache=1: must be at least 16M' mount.ckptfs "$new" "$dir" -o cache=1
mistake 1 'option page=12K: must be a power of two, 4K to 1M' mount.ckptfs "$new" "$dir" -o page=12K
mistake 1 'option commit=0: must be 1 to 3600 seconds' mount.ckptfs "$new" "$dir" -o commit=0
mistake 1 'option compress=gzip: must be none, lz4' mount.ckptfs "$new" "$dir" -o compress=gzip
mistake 1 'option hash=md5: must be one of auto' mount.ckptfs "$new" "$dir" -o hash=md5
mistake 1 'option log_level=loud: must be one of error' mount.ckptfs "$new" "$dir" -o log_level=loud
mistake 1 'option metrics=0: must be PORT' mount.ckptfs "$new" "$dir" -o metrics=0
mistake 1 'option autoseal=a/b: must be names' mount.ckptfs "$new" "$dir" -o autoseal=a/b
mistake 1 'option cdc=1:2:3: must be MIN:MEAN:MAX' mount.ckptfs "$new" "$dir" -o cdc=1:2:3
mistake 1 'option tier=nfs:/x: unknown scheme: use dir:/path' mount.ckptfs "$new" "$dir" -o tier=nfs:/x
mistake 1 'option tier=dir:here: needs a path that begins with a slash' mount.ckptfs "$new" "$dir" -o tier=dir:here
mistake 1 'option tier_parallel=65: must be 0 to 64 requests' mount.ckptfs "$new" "$dir" -o tier=dir:"$dir",tier_parallel=65
mistake 1 'option tier_rate=fast: ' mount.ckptfs "$new" "$dir" -o tier=dir:"$dir",tier_rate=fast
mistake 1 '-o: needs a value; try' mount.ckptfs "$new" "$dir" -o
mistake 1 '--wrong: no such option.*; try' mount.ckptfs "$new" "$dir" --wrong
mistake 32 'new: does not exist, and a read-only mount' mount.ckptfs "$new" "$dir" -o ro
mistake 32 'no/store: its parent directory does not exist; mkdir it first' mount.ckptfs "$no/store" "$dir"
mistake 32 'file: not a directory; a store is a directory of its own' mount.ckptfs "$file" "$dir"
mistake 32 'not a ckptfs store, and not empty; give a new or empty directory' mount.ckptfs "$full" "$dir"
mistake 32 'mountpoint .*/no: does not exist; mkdir it first' mount.ckptfs "$new" "$no"
mistake 32 'mountpoint .*/full: not empty .*; -o nonempty mounts over it' mount.ckptfs "$new" "$full"
mistake 32 'is not mounted on' mount.ckptfs "$new" "$dir" -o remount,ro
mistake 1 'an action and the URL of a tier must be given' ckptfs-tier list
mistake 1 'lst: no such action; did you mean list[?] try' ckptfs-tier lst "dir:$dir"
mistake 1 'show: no such action; try' ckptfs-tier show "dir:$dir"
mistake 1 "$dir: not the address of a tier: use dir:/path or s3://bucket/prefix" ckptfs-tier list "$dir"
mistake 1 's3://: is not of the form s3://BUCKET/PREFIX' ckptfs-tier list s3://
mistake 1 'dir:here: needs a path that begins with a slash' ckptfs-tier list dir:here
mistake 1 'list: one URL must be given' ckptfs-tier list "dir:$dir" run/1
mistake 1 'get: a URL, a checkpoint and a new directory must be given' ckptfs-tier get "dir:$dir" run/1
mistake 1 'list: has no option --quiet' ckptfs-tier list --quiet "dir:$dir"
mistake 1 'get: has no option --json' ckptfs-tier get --json "dir:$dir" run/1 "$new"
mistake 1 'verify: --trust, --no-owner and --no-xattrs go with get only' ckptfs-tier verify --trust "dir:$dir"
mistake 1 '--cache 1M: must be at least 16M' ckptfs-tier verify --cache 1M "dir:$dir"
mistake 1 '--secret: no such option' ckptfs-tier list --secret x "dir:$dir"
mistake 2 'run/1: no such checkpoint in .*; ckptfs-tier list .* lists them' ckptfs-tier get "dir:$dir" run/1 "$new"
mistake 2 'exists already; give the name of a new directory' ckptfs-tier get "dir:$dir" run/1 "$full"
mistake 1 'one directory for the store must be given' ckptfs-init
mistake 1 'one directory for the store must be given' ckptfs-init a b
mistake 1 '--hash md5: must be one of auto' ckptfs-init --hash md5 "$new"
mistake 1 '--dedup all: must be one of global' ckptfs-init --dedup all "$new"
mistake 1 '--page: no such option' ckptfs-init --page 8K "$new"
mistake 2 'its parent directory does not exist; mkdir it first' ckptfs-init "$no/store"
mistake 2 'not a ckptfs store, and not empty; give' ckptfs-init "$full"
mistake 2 'not a directory; give' ckptfs-init "$file"
mistake 16 'one store must be given' fsck.ckptfs
mistake 16 '-n, -p and -y exclude each other' fsck.ckptfs -n -y "$new"
mistake 16 '--rebuild and -n exclude each other' fsck.ckptfs -n --rebuild "$new"
mistake 16 '--cache x: not a size such as' fsck.ckptfs --cache x "$new"
mistake 16 '-Q: no such option; try' fsck.ckptfs -Q "$new"
mistake 8 'No such file or directory; give the directory of a store' fsck.ckptfs "$no"
mistake 8 'has no superblock: not a ckptfs store; give' fsck.ckptfs "$dir"
mistake 8 'not a directory; give' fsck.ckptfs "$file"
mistake 1 'a program must be given' ckptfs-run --store "$new"
mistake 1 'no store: give --store' ckptfs-run true
mistake 1 '--signal KILL: must be TERM' ckptfs-run --store "$new" --signal KILL true
mistake 1 '--signal-before x: not a time such as' ckptfs-run --store "$new" --signal-before x true
mistake 1 'the end of the job is unknown; give --time-limit' ckptfs-run --store "$new" --signal-before 5m true
mistake 1 '--on-daemon-death x: must be one of' ckptfs-run --store "$new" --on-daemon-death x true
mistake 1 '% must be followed by' ckptfs-run --store "$WORK/%z" true
mistake 125 'its parent directory does not exist; mkdir it first' ckptfs-run --store "$no/store" --mount "$dir" true
mistake 125 'not empty' ckptfs-run --store "$new" --mount "$full" true
mistake 125 'option nosuch: not known; .*mount.ckptfs --help' ckptfs-run --store "$new" --mount "$dir" -o nosuch true
mistake 125 'no ckptfs is mounted there; mount it first' ckptfs-run --shared --store "$new" --mount "$dir" true
mistake 1 'standard input must be a file' ckptfs-classify
mistake 3 '--json and --quiet exclude each other' ckptfs-doctor --json --quiet
mistake 3 '--wrong: no such option' ckptfs-doctor --wrong
[ ! -e "$new" ] || fail "a refused command has made a store"

# --- while it is mounted ---
fs_mount commit=3600
mkdir "$MNT/plain" "$MNT/run" "$MNT/run/step.1" "$MNT/open" "$MNT/theirs"
noise 1 1 | tee "$MNT/run/step.1/state" >"$MNT/plain/state"
ckptfs-seal --quiet "$MNT/run/step.1"
mkfifo "$MNT/fifo"
ln -s nowhere "$MNT/dangling"
exec 7>"$MNT/open/f"

mistake 1 'a command must be given' ckptfs
mistake 1 'sael: no such command; did you mean ckptfs seal' ckptfs sael "$MNT"
mistake 1 'ls: no such command; did you mean ckptfs list' ckptfs ls
mistake 1 'a command must be given; ckptfs help lists all' ckptfs ''
mistake 1 '--wrong: no such option' ckptfs --wrong
mistake 1 'version takes no arguments' ckptfs version 2
mistake 1 'xyzzy: no such command; ckptfs help lists all' ckptfs help xyzzy
mistake 1 'what to keep must be given: --keep-last' ckptfs prune "$MNT/run"
mistake 32 'mounted there already; umount it first' mount.ckptfs "$new" "$MNT"
mistake 32 'in use: mounted on .* already; use that, or umount it first' mount.ckptfs "$STORE" "$dir"
mistake 1 'cache=64M: cannot be changed while mounted; umount' mount.ckptfs "$STORE" "$MNT" -o remount,cache=64M
mistake 2 'is a store already.*; mount it, or create another' ckptfs-init "$STORE"
mistake 1 'one mountpoint or store must be given' umount.ckptfs
mistake 32 'neither a ckptfs mountpoint nor a mounted store; see /proc/mounts' umount.ckptfs /proc
mistake 32 'in use; fuser -vm' umount.ckptfs "$MNT"
mistake 32 'fusermount3 is not installed or not in PATH; install fuse3' as_nobody env PATH=/nowhere "$CKPTFS_BUILD/tools/umount.ckptfs" "$MNT"
mistake 1 '--timeout x: not a time such as' umount.ckptfs --timeout x "$MNT"
mistake 1 '-Z: no such option' umount.ckptfs -Z "$MNT"
mistake 125 'in use: mounted on .* already; use that' ckptfs-run --store "$STORE" --mount "$dir" true
mistake 127 'nosuchprogram: not found in PATH; give its path' ckptfs-run --shared --store "$STORE" --mount "$MNT" nosuchprogram

mistake 2 'No such file or directory; give' ckptfs-stat "$no"
mistake 2 'not on a ckptfs; give a mountpoint' ckptfs-stat "$dir"
mistake 2 'a store; give its mountpoint' ckptfs-stat "$STORE"
mistake 2 'neither a file nor a directory; give one of them' ckptfs-stat "$MNT/fifo"
mistake 2 'neither a file nor a directory; give one of them' ckptfs-stat "$MNT/dangling"
mistake 1 '--json and --prometheus exclude each other' ckptfs-stat --json --prometheus "$MNT"
mistake 1 '--prometheus is for mounts; give the mountpoint' ckptfs-stat --prometheus "$MNT/run"
mistake 1 '--html is for a whole mount; give the mountpoint' ckptfs-stat --html "$new" "$MNT/run"
mistake 1 'exists and is not a report of ckptfs-stat; not overwritten, give another name' ckptfs-stat --html "$file" "$MNT"
mistake 1 '--html: needs a value' ckptfs-stat --html
mistake 1 '--html needs a file, in which' ckptfs-stat --html - "$MNT"
mistake 2 '/dev/fuse: missing; modprobe fuse, and in a container pass this device$' unshare --mount sh -c 'mount -t tmpfs none /dev && exec "$@"' sh mount.ckptfs "$new" "$dir"
mistake 1 '--watch x: not a number of seconds' ckptfs-stat --watch=x "$MNT"
mistake 1 '--quick goes with --verify only' ckptfs-stat --quick "$MNT"
mistake 1 '--verify needs the sealed directories' ckptfs-stat --verify
mistake 2 'not on a mounted ckptfs; ckptfs stat lists' ckptfs-stat --verify "$dir"
mistake 2 'Not a directory; give a sealed directory' ckptfs-stat --verify "$MNT/plain/state"
mistake 1 '--if-deleted needs the files' ckptfs-stat --if-deleted
mistake 2 'not on a ckptfs; give' ckptfs-stat --if-deleted "$file"
mistake 2 'not on a ckptfs; give a mountpoint' ckptfs-stat --users "$dir"
mistake 2 'not on a ckptfs; give a mountpoint' ckptfs-stat --variables "$dir"
mistake 2 'not on a ckptfs; give a mountpoint' ckptfs-stat --sealed "$dir"

mistake 1 'a directory must be given' ckptfs-seal
mistake 2 'it is a mountpoint.*; seal a directory below it, or use --force' ckptfs-seal "$MNT"
mistake 2 'No such file or directory; give a directory on a ckptfs' ckptfs-seal "$no"
mistake 2 'not on a mounted ckptfs; ckptfs stat lists' ckptfs-seal "$dir"
mistake 2 'not a directory; give a directory on a ckptfs' ckptfs-seal "$MNT/plain/state"
mistake 2 'open/f .* is open for writing; close it first' ckptfs-seal "$MNT/open"
mistake 2 'run/step.1 .* is sealed separately; unseal it first' ckptfs-seal "$MNT/run"
mistake 2 'only its owner and root may seal or unseal it; run this as one of them' as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/plain"
mistake 1 '--wait all: must be local' ckptfs-seal --wait=all "$MNT/plain"
mistake 1 '--unseal and --list exclude each other' ckptfs-seal --unseal --list "$MNT"
mistake 1 '--json requires --list' ckptfs-seal --json "$MNT/plain"
mistake 1 'a mountpoint must be given' ckptfs-seal --list
mistake 2 'not on a ckptfs; give a mountpoint' ckptfs-seal --list "$dir"
mistake 2 'not sealed, so there is nothing to wait for; seal it first' ckptfs-seal --no-seal --wait=replicated "$MNT/plain"
mistake 2 'neither protect=partner nor protect=xor; mount it with' ckptfs-seal --no-seal --wait=replicated "$MNT/run/step.1"
mistake 2 'has no compact_group=; mount it with' ckptfs-seal --no-seal --wait=gathered "$MNT/run/step.1"
mistake 1 'one directory must be given' ckptfs-restart-path
mistake 2 'No such file or directory; give' ckptfs-restart-path "$no"
mistake 2 'not on a ckptfs; give a mountpoint' ckptfs-restart-path "$dir"
mistake 3 'no sealed directory in it is valid; start from the beginning' ckptfs-restart-path "$MNT/theirs"
mistake 1 '--quick and --no-verify exclude each other' ckptfs-restart-path --quick --no-verify "$MNT"

mistake 1 'one mountpoint, store, directory or URL of a tier must be given' ckptfs-gc
mistake 2 'No such file or directory; give a mountpoint or a store' ckptfs-gc "$no"
mistake 2 'neither a ckptfs mount nor a store; give one of them' ckptfs-gc "$dir"
mistake 1 '--rate fast: not a size such as' ckptfs-gc --rate fast "$MNT"
mistake 1 '--budget 10x: not a time such as' ckptfs-gc --budget 10x "$MNT"
mistake 1 '--move-below 101: not a percentage from 0 to 100' ckptfs-gc --move-below 101 "$MNT"
mistake 1 '--place changes the store, so it needs --delete' ckptfs-gc --place "$MNT"
mistake 1 '--keep-last x: not a whole number' ckptfs-gc --keep-last x "$MNT/run"
mistake 1 '--keep-last -1: not a number from 1 on' ckptfs-gc --keep-last -1 "$MNT/run"
mistake 1 '--keep-last 0: not a number from 1 on' ckptfs-gc --keep-last 0 "$MNT/run"
mistake 1 '--keep-within 3: not a time with a unit, such as' ckptfs-gc --keep-within 3 "$MNT/run"
mistake 1 '--keep-within 3y: not a time with a unit, such as' ckptfs-gc --keep-within 3y "$MNT/run"
mistake 2 'not on a ckptfs; give' ckptfs-gc --keep-last 1 "$dir"
mistake 1 '--gc requires --delete or --drop, and a --keep option' ckptfs-gc --keep-last 1 --gc "$MNT/run"
mistake 1 '--policies and the --keep options exclude each other' ckptfs-gc --policies --keep-last 1 "$MNT"
mistake 2 'only root and the mounting user may collect; run it as one of them' as_nobody "$CKPTFS_BUILD/tools/ckptfs-gc" --delete "$MNT"
mistake 1 'one mountpoint must be given' ckptfs-scrub
mistake 2 'No such file or directory; give a mountpoint' ckptfs-scrub "$no"
mistake 2 'not on a ckptfs; give a mountpoint' ckptfs-scrub "$dir"
mistake 2 'a store; give its mountpoint, or run fsck.ckptfs' ckptfs-scrub "$STORE"
mistake 1 '--budget x: not a time such as' ckptfs-scrub --budget x "$MNT"
mistake 2 'may scrub; run it as one of them' as_nobody "$CKPTFS_BUILD/tools/ckptfs-scrub" "$MNT"
mistake 8 'mounted on .*; umount it and check the store, or run ckptfs scrub' fsck.ckptfs "$STORE"
mistake 8 'mounted on .*; umount it and check the store, or run ckptfs scrub' fsck.ckptfs -y "$MNT"
mistake 2 'two files or two directories must be given' ckptfs-diff "$MNT/plain"
mistake 2 '--unit 3: not a power of two from 1 to 1M' ckptfs-diff --unit 3 "$MNT/plain" "$MNT/run"
mistake 2 '--json and --quiet exclude each other' ckptfs-diff --json --quiet "$MNT/plain" "$MNT/run"
mistake 1 'a file or directory must be given' ckptfs-analyze
mistake 2 'no files to analyze; give' ckptfs-analyze "$dir"
mistake 2 'neither a file nor a directory; give one of them' ckptfs-analyze "$MNT/fifo"
mistake 1 '--chunking x: must be page, cdc or auto' ckptfs-analyze --chunking x "$MNT/plain"
mistake 1 '--chain 99: must be 0 to 15' ckptfs-analyze --chain 99 "$MNT/plain"
mistake 1 '--variables and --no-compact exclude each other' ckptfs-analyze --variables --no-compact "$MNT/plain"
mistake 1 'a file or directory must be given' ckptfs-compact
mistake 2 'not on a mounted ckptfs; ckptfs stat lists' ckptfs-compact "$file"
mistake 2 'no files to compact; give' ckptfs-compact "$dir"
mistake 1 '--pause and --resume exclude each other' ckptfs-compact --pause --resume "$MNT"
mistake 1 '--block 3: must be at least 4K' ckptfs-compact --block 3 "$MNT/plain"
mistake 2 'may compact; run it as one of them' as_nobody "$CKPTFS_BUILD/tools/ckptfs-compact" "$MNT/plain"
if [ -x "$CKPTFS_BUILD/mpi-agent/ckptfs-agent" ]; then
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	mistake 1 '--mount is needed' ckptfs-agent
	mistake 1 '--remember x: not a whole number' ckptfs-agent --mount "$MNT" --remember x
	mistake 1 '--status, --repair and --forget exclude each other' ckptfs-agent --mount "$MNT" --status --repair
	mistake 2 'made without cluster=' ckptfs-agent --mount "$MNT" --forget other
	# Open MPI does not free all that it has allocated.
	mistake 2 'no ckptfs is mounted there; mount it first' env ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" ckptfs-agent --mount "$dir"
	mistake 2 'no such socket' ckptfs-agent --mount "$MNT" --status
fi
[ ! -e "$new" ] || fail "a refused command has made a file"

# --- after its daemon has died ---
exec 7>&-
daemon_kill
died='the daemon of this mount has died; unmount and mount it again'
mistake 32 'the daemon of an earlier mount has died; umount it first' mount.ckptfs "$STORE" "$MNT"
mistake 125 'has died; umount.ckptfs' ckptfs-run --shared --store "$STORE" --mount "$MNT" true
mistake 2 "$died" ckptfs-stat "$MNT"
mistake 2 "$died" ckptfs-stat --verify "$MNT/run/step.1"
mistake 2 "$died" ckptfs-seal "$MNT/plain"
mistake 2 "$died" ckptfs-restart-path "$MNT/run"
mistake 2 "$died" ckptfs-gc "$MNT"
mistake 2 "$died" ckptfs-scrub "$MNT"
mistake 2 "$died" ckptfs-diff "$MNT/plain" "$MNT/run"
mistake 2 "$died" ckptfs-analyze "$MNT/plain"
mistake 2 "$died" ckptfs-compact "$MNT/plain"
fs_kill

for program in "$CKPTFS_BUILD"/tools/*ckptfs* "$CKPTFS_BUILD"/fs/mount.ckptfs "$CKPTFS_BUILD"/mpi-agent/ckptfs-agent; do
	[ -f "$program" ] && [ -x "$program" ] || continue
	[ -n "${of[${program##*/}]:-}" ] || fail "no mistake with ${program##*/}"
done
[ "$wrong" = 0 ] || fail "$wrong of $nr mistakes are answered badly"
[ "$nr" -ge 100 ] || fail "only $nr mistakes"
echo "ok $nr mistakes with ${#of[@]} programs"
