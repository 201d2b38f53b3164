#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs COMMAND does what the program of the command does, with its arguments, output and exit status; words that are
# no command are refused, and what was probably meant is named.
. "$(dirname "$0")/lib.sh"
need_mount

ckptfs=$CKPTFS_BUILD/tools/ckptfs

# Words.
exits 1 "$ckptfs"
says 'a command must be given'
exits 1 "$ckptfs" sael /nowhere
says 'sael: no such command; did you mean ckptfs seal?'
exits 1 "$ckptfs" ls
says 'did you mean ckptfs list?'
exits 1 "$ckptfs" $'xyzzy\e[31m'
says 'xyzzy\\033\[31m: no such command; ckptfs help lists all'
exits 1 "$ckptfs" --sealed
says '--sealed: no such option'
exits 0 "$ckptfs" --version
tells '^ckptfs [0-9]'
exits 0 "$ckptfs" version
tells '^ckptfs [0-9]'
tells '^  RocksDB  *[0-9]'
tells '^  MPI  *\([0-9.]*\|no\)$'
exits 1 "$ckptfs" version 2
says 'version takes no arguments'
echo "ok words"

# Help: of all, by man where there is one, else by the program.
exits 0 "$ckptfs" help
tells '^  restart  '
exits 1 "$ckptfs" help restrat
says 'did you mean ckptfs restart?'
mkdir "$WORK/bin" "$WORK/empty"
printf '#!/bin/sh\necho "page $*"\n' >"$WORK/bin/man"
chmod +x "$WORK/bin/man"
exits 0 env PATH="$WORK/bin:$PATH" "$ckptfs" help restart
tells '^page 1 ckptfs-restart-path$'
exits 0 env PATH="$WORK/bin:$PATH" "$ckptfs" help fsck
tells '^page 8 fsck.ckptfs$'
exits 0 env PATH="$WORK/bin:$PATH" "$ckptfs" help version
tells '^page 7 ckptfs$'
printf '#!/bin/sh\necho no page >&2\nexit 16\n' >"$WORK/bin/man"
exits 0 env PATH="$WORK/bin:$PATH" "$ckptfs" help restart
tells '^Usage: ckptfs-restart-path '
says_not 'no page'
exits 0 env PATH="$WORK/empty" "$ckptfs" help restart
tells '^Usage: ckptfs-restart-path '
exits 0 env PATH="$WORK/empty" "$ckptfs" help version
tells '^Usage: ckptfs version'
for word in --help -h; do
	exits 0 "$ckptfs" help $word
	tells '^Usage: ckptfs COMMAND'
	exits 0 "$ckptfs" version $word
	tells '^Usage: ckptfs COMMAND'
	exits 0 "$ckptfs" list $word # a word for another command with an option: its help says so
	tells '^ckptfs list: list sealed checkpoints$'
	tells '^It stands for ckptfs-stat --sealed\.$'
	tells '^Usage: ckptfs-stat '
done
exits 0 env PATH="$WORK/empty" "$ckptfs" help prune
tells '^It stands for ckptfs-gc --prune\.$'
exits 0 "$ckptfs" stat --help
says_not 'It stands for'
# All have a program, which knows itself, and a page.
"$ckptfs" help --commands >"$WORK/commands"
[ "$(wc -l <"$WORK/commands")" -ge 16 ] || fail "too few commands"
while IFS= read -r row; do
	name=${row%%$'\t'*} about=${row##*$'\t'} line=${row#*$'\t'} line=${line%$'\t'*}
	grep -q "^  $name  *$about\$" <("$ckptfs" help) || fail "$name: not in the help"
	grep -q "^\.It Cm $name\$" "$HERE/../../docs/man/ckptfs.7" || fail "$name: not in ckptfs(7)"
	[ -n "$line" ] || continue
	exits 0 "$ckptfs" "$name" --version
	tells "^${line%% *} [0-9]"
	[ -e "$HERE/../../docs/man/${line%% *}.1" ] || [ -e "$HERE/../../docs/man/${line%% *}.8" ] || fail "$name: no page"
done <"$WORK/commands"
echo "ok help"

# Links lead to the programs of the installation; without them it says which one is missing.
ln -s "$ckptfs" "$WORK/bin/link"
exits 0 "$WORK/bin/link" stat --version
mkdir "$WORK/alone"
cp "$ckptfs" "$WORK/alone/"
exits 127 "$WORK/alone/ckptfs" gc "$MNT"
says '^ckptfs: gc: ckptfs-gc is missing beside this program; install ckptfs again$'
mkdir "$WORK/sbin"
printf '#!/bin/sh\necho "$0" "$@"\nexit 5\n' >"$WORK/sbin/fsck.ckptfs"
chmod +x "$WORK/sbin/fsck.ckptfs"
exits 5 "$WORK/alone/ckptfs" fsck -n 'a b' ''
[ "$(cat "$WORK/out")" = "$WORK/alone/../sbin/fsck.ckptfs -n a b " ] || fail_showing "fsck gets other arguments"
echo "ok programs"

# Each of them at work.
exits 0 "$ckptfs" mount "$STORE" "$MNT" -o commit=3600
mounted || fail "ckptfs mount mounts nothing"
mkdir "$MNT/run" "$MNT/run/step.1" "$MNT/run/step.2"
noise 1 4 >"$MNT/run/step.1/state"
cp "$MNT/run/step.1/state" "$MNT/run/step.2/state"
noise 2 1 | dd of="$MNT/run/step.2/state" conv=notrunc status=none
exits 3 "$ckptfs" restart "$MNT/run"
exits 3 "$ckptfs" verify "$MNT/run/step.1"
exits 0 "$ckptfs" seal "$MNT/run/step.1" "$MNT/run/step.2"
tells 'step.2: sealed: 1 file,'
exits 0 "$ckptfs" list "$MNT"
tells 'run/step.1'
exits 0 "$ckptfs" list --json
tells '"schema_version"'
exits 0 "$ckptfs" verify "$MNT/run/step.1"
exits 0 "$ckptfs" restart "$MNT/run"
[ "$(cat "$WORK/out")" = "$MNT/run/step.2" ] || fail_showing "not the newest one"
exits 0 "$ckptfs" stat "$MNT"
tells "^$STORE on $MNT "
exits 1 "$ckptfs" diff --summary "$MNT/run/step.1" "$MNT/run/step.2"
exits 0 "$ckptfs" diff "$MNT/run/step.1" "$MNT/run/step.1"
exits 0 "$ckptfs" compact --dry-run "$MNT/run"
exits 2 "$ckptfs" wait "$MNT/run/step.1"
says '^ckptfs-seal: .*/run/step.1: not replicated on another node: the mount has neither protect=partner nor protect=xor; mount it with one of them$'
exits 2 "$ckptfs" wait "$MNT/run"
says ': not sealed, so there is nothing to wait for; seal it first$'
exits 1 "$ckptfs" wait --wait=local "$MNT/run/step.1"
exits 2 "$ckptfs" wait --wait=gathered "$MNT/run/step.1"
says ': not gathered: the mount has no compact_group=; mount it with that$'
exits 0 "$ckptfs" scrub "$MNT"
exits 0 "$ckptfs" gc "$MNT"
tells '^Garbage:'
TMPDIR=$WORK exits 0 "$ckptfs" analyze --no-compact --chunking page --compress none --quiet "$MNT/run"
exits 0 "$ckptfs" umount "$MNT" # a file that the kernel remembers keeps its chunks
exits 0 "$ckptfs" mount "$STORE" "$MNT" -o commit=3600
exits 1 "$ckptfs" prune "$MNT/run"
says 'what to keep must be given: --keep-last,'
exits 1 "$ckptfs" prune --delete "$MNT"
exits 0 "$ckptfs" prune --keep-last 1 "$MNT/run"
tells "^remove  *$MNT/run/step.1 "
[ -e "$MNT/run/step.1" ] || fail "removed without --delete"
exits 0 "$ckptfs" prune --keep-last 1 --delete --gc "$MNT/run"
tells '^1 sealed checkpoint removed\.$' # and what frees its space is not named, as it is done
tells '^Freed: *1 MiB in 256 chunks'
[ "$(ls "$MNT/run")" = step.2 ] || fail "another one was removed"
exits 0 "$ckptfs" umount "$MNT"
! mounted || fail "ckptfs umount unmounts nothing"
exits 0 "$ckptfs" fsck -n --read-data "$STORE"
exits 9 "$ckptfs" run --store "$STORE" --mount "$MNT" -- sh -c 'ls "$CKPTFS_MOUNT/run" && exit 9'
tells '^step.2$'
says '1 sealed checkpoint'
echo "ok commands"
