#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A name is bytes: whatever it has in it, no command and no log line shows more lines, colours or characters than its own, and JSON stays
# JSON.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

tools=$CKPTFS_BUILD/tools
# Among others U+009B, U+0085, U+202E, U+2066, U+200B, U+2028.
evil=$'a\nFORGED line\e[31m\a"\'\\ \xff\xc2\x9b\xc2\x85\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8b\xe2\x80\xa8\x7f$(x)%s'

# harmless WHAT FILE [json]: lines of visible characters, and none that the name made
harmless() {
	"$PYTHON" - "$@" <<-'EOT' || fail "$1"
	import json, sys, unicodedata
	text = open(sys.argv[2], "rb").read()
	try:
	    shown = text.decode()
	except UnicodeDecodeError as e:
	    sys.exit(f"{sys.argv[1]}: not UTF-8: {e}: {text!r}")
	bad = [c for c in shown if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
	if bad or any(l.startswith("FORGED") for l in shown.split("\n")):
	    sys.exit(f"{sys.argv[1]}: {text!r}")
	if sys.argv[3:]:
	    json.loads(shown)
	EOT
}

# unharmed CODE TOOL ARGUMENT...: what it prints and says is harmless
nr=0
unharmed() {
	local code=$1 tool=$2 r=0 as=
	shift 2
	"$tools/$tool" "$@" >"$WORK/out" 2>"$WORK/said" </dev/null || r=$?
	[ $r = "$code" ] || fail_showing "$tool ${*@Q} ended with $r, not with $code"
	case " $* " in *' --json '*) as=json ;; esac
	harmless "$tool: standard output" "$WORK/out" $as
	harmless "$tool: messages" "$WORK/said"
	nr=$((nr + 1))
}
# try CODE TOOL ARGUMENT...: and has the name
try() {
	unharmed "$@"
	grep -qF FORGED "$WORK/out" "$WORK/said" || fail_showing "${*@Q} does not tell of the name"
}
# on_terminal CODE TOOL ARGUMENT...: the same on a terminal, but for the sequences with which commands draw
on_terminal() {
	local code=$1 tool=$2 r=0
	shift 2
	"$PYTHON" -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' \
		"$tools/$tool" "$@" >"$WORK/drawn" </dev/null || r=$?
	sed 's/\x1b\[[HJK]//g; s/\r//g' "$WORK/drawn" >"$WORK/out"
	: >"$WORK/said"
	[ $r = "$code" ] || fail_showing "$tool ${*@Q} ended with $r, not with $code"
	harmless "$tool on a terminal" "$WORK/out"
	grep -qF FORGED "$WORK/out" || fail_showing "$tool ${*@Q} does not tell of the name"
	nr=$((nr + 1))
}

fs_mount
mkdir "$MNT/$evil" "$MNT/other" "$MNT/lineage" "$MNT/lineage/$evil"
noise 1 1 >"$MNT/$evil/$evil"
noise 2 1 >"$MNT/other/$evil"
noise 3 1 >"$MNT/lineage/$evil/$evil"
sync -f "$MNT"

# Names that are there.
for json in '' --json; do
	try 0 ckptfs-stat ${json:+"$json"} "$MNT/$evil"
	try 0 ckptfs-stat ${json:+"$json"} "$MNT/$evil/$evil"
	try 0 ckptfs-stat ${json:+"$json"} --if-deleted "$MNT/$evil/$evil"
	try 1 ckptfs-diff ${json:+"$json"} "$MNT/$evil" "$MNT/other"
	try 0 ckptfs-analyze ${json:+"$json"} "$MNT/$evil"
done
try 0 ckptfs-seal "$MNT/$evil"
try 0 ckptfs-seal "$MNT/$evil" # once more
try 2 ckptfs-seal "$MNT/$evil/$evil"
for json in '' --json; do
	try 0 ckptfs-seal --list ${json:+"$json"} "$MNT"
	try 0 ckptfs-stat --sealed ${json:+"$json"} "$MNT"
	try 0 ckptfs-stat --verify ${json:+"$json"} "$MNT/$evil"
done
mkdir "$WORK/scratch"
on_terminal 0 ckptfs-run --shared --store "$STORE" --mount "$MNT" --flush-to "$WORK/scratch" true
cmp "$MNT/$evil/$evil" "$WORK/scratch/$evil/$evil" || fail "ckptfs-run has copied something else"
for json in '' --json; do
	unharmed 0 ckptfs-compact ${json:+"$json"} --scheme agnostic "$MNT/$evil"
	unharmed 0 ckptfs-stat --variables ${json:+"$json"} "$MNT"
	unharmed 0 ckptfs-stat --users ${json:+"$json"} "$MNT"
done
try 0 ckptfs-seal --unseal "$MNT/$evil"
try 1 ckptfs-stat --prometheus "$MNT/$evil"
"$tools/ckptfs-seal" -q "$MNT/lineage/$evil"
"$tools/ckptfs-restart-path" --null "$MNT/lineage" >"$WORK/path"
printf '%s\0' "$MNT/lineage/$evil" | cmp - "$WORK/path" || fail "ckptfs-restart-path changes a name that is for a program"
on_terminal 0 ckptfs-restart-path "$MNT/lineage"
echo "ok names that are there"

# Names that are not, or not what a command wants.
for tool in ckptfs-stat ckptfs-seal ckptfs-gc ckptfs-scrub ckptfs-analyze ckptfs-compact ckptfs-restart-path fsck.ckptfs umount.ckptfs; do
	"$tools/$tool" "$WORK/no/$evil" >"$WORK/out" 2>"$WORK/said" && fail "$tool accepts what is not there"
	harmless "$tool" "$WORK/said"
	"$tools/$tool" "$MNT/other/$evil" >"$WORK/out" 2>"$WORK/said" || true
	harmless "$tool" "$WORK/said"
	harmless "$tool" "$WORK/out"
done
try 2 ckptfs-diff "$WORK/no/$evil" "$MNT/other"
try 1 ckptfs-gc --rate "$evil" "$MNT"
try 1 ckptfs-scrub --rate "$evil" "$MNT"
try 125 ckptfs-run --shared --store "$STORE" --mount "$MNT" --flush-to "$WORK/no/${evil%\%s}" true
"$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o "$evil" >"$WORK/said" 2>&1 && fail "mount.ckptfs accepts an option that is none"
harmless mount.ckptfs "$WORK/said"
echo "ok names that are not there"

# Tiers and checkpoints that do not exist. tier-tool.sh has names of existing ones.
mkdir "$WORK/tier" "$WORK/tier.$evil"
try 2 ckptfs-tier list "dir:$WORK/no/$evil"
try 2 ckptfs-tier verify "dir:$WORK/tier.$evil" "$evil"
try 2 ckptfs-tier get "dir:$WORK/tier" "$evil" "$WORK/got"
try 2 ckptfs-tier get "dir:$WORK/tier" other "$WORK/no/$evil/got"
echo "ok tiers"

# Options that are a name, as of "command *".
for tool in $(cd "$tools" && echo *ckptfs*); do
	[ -f "$tools/$tool" ] && [ "$tool" != ckptfs-classify ] || continue
	for option in "-${evil#*line}" "--$evil" "--help=$evil"; do
		"$tools/$tool" "$option" >"$WORK/out" 2>"$WORK/said" && fail "$tool accepts an option that is none"
		harmless "$tool" "$WORK/said"
	done
done
for option in "-${evil#*line}" "--$evil" "--help=$evil"; do
	"$CKPTFS_BUILD/fs/mount.ckptfs" "$option" "$STORE" "$MNT" >"$WORK/said" 2>&1 &&
		fail "mount.ckptfs accepts an option that is none"
	harmless mount.ckptfs "$WORK/said"
done
echo "ok options"

# A mountpoint.
mkdir "$WORK/$evil"
trap 'code=$?; set +e; umount -l "$WORK/$evil" 2>/dev/null; (exit $code); cleanup' EXIT
"$CKPTFS_BUILD/fs/mount.ckptfs" "$WORK/second.$evil" "$WORK/$evil" >"$WORK/said" 2>&1 || fail_showing "no mount"
harmless mount.ckptfs "$WORK/said"
for json in '' --json; do
	try 0 ckptfs-stat ${json:+"$json"} "$WORK/$evil"
	try 0 ckptfs-stat --users ${json:+"$json"} "$WORK/$evil"
	try 0 ckptfs-stat --variables ${json:+"$json"} "$WORK/$evil"
done
try 0 ckptfs-stat --prometheus
unharmed 0 ckptfs-gc "$WORK/$evil"
unharmed 0 ckptfs-scrub "$WORK/$evil"
unharmed 0 umount.ckptfs -v "$WORK/$evil"
echo "ok mountpoint"

# Damage: ckptfs-scrub, the daemon's log and fsck.ckptfs name the files.
strike "$MNT/other/$evil"
try 4 ckptfs-scrub --restart "$MNT"
try 4 ckptfs-scrub --restart --json "$MNT"
drop_caches
! cat "$MNT/other/$evil" >/dev/null 2>&1 || fail "damage was not met"
fs_umount
harmless "the daemon's log" "$WORK/daemon.log"
try 4 fsck.ckptfs -n --read-data "$STORE"
try 4 fsck.ckptfs -n --read-data --json "$STORE"
mv "$STORE" "$STORE.$evil"
try 4 fsck.ckptfs -n --read-data "$STORE.$evil"
echo "ok damaged files, after $nr commands"
