#!/bin/bash
# A name is bytes: whatever it has in it, no command and no log line shows more lines, colours or characters than its own, and JSON stays
# JSON.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

tools=$CKPTFS_BUILD/tools
evil=$'a\nFORGED line\e[31m\a"\'\\ \xff\xc2\x9b\x7f$(x)%s'

# harmless WHAT FILE [json]: lines of printable characters, and none that the name made
harmless() {
	"$PYTHON" - "$@" <<-'EOT' || fail "$1"
	import json, sys
	text = open(sys.argv[2], "rb").read()
	try:
	    shown = text.decode()
	except UnicodeDecodeError as e:
	    sys.exit(f"{sys.argv[1]}: not UTF-8: {e}: {text!r}")
	bad = [c for c in shown if (c < " " and c != "\n") or "\x7f" <= c < "\xa0"]
	if bad or any(l.startswith("FORGED") for l in shown.split("\n")):
	    sys.exit(f"{sys.argv[1]}: {text!r}")
	if sys.argv[3:]:
	    json.loads(shown)
	EOT
}

# try CODE TOOL ARGUMENT...: what it prints and says is harmless, and has the name
nr=0
try() {
	local code=$1 tool=$2 r=0 as=
	shift 2
	"$tools/$tool" "$@" >"$WORK/out" 2>"$WORK/said" </dev/null || r=$?
	[ $r = "$code" ] || fail_showing "$tool ${*@Q} ended with $r, not with $code"
	case " $* " in *' --json '*) as=json ;; esac
	harmless "$tool: standard output" "$WORK/out" $as
	harmless "$tool: messages" "$WORK/said"
	grep -qF FORGED "$WORK/out" "$WORK/said" || fail_showing "$tool ${*@Q} does not tell of the name"
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
try 0 ckptfs-seal --unseal "$MNT/$evil"
try 1 ckptfs-stat --prometheus "$MNT/$evil"
"$tools/ckptfs-seal" -q "$MNT/lineage/$evil"
"$tools/ckptfs-restart-path" --null "$MNT/lineage" >"$WORK/path"
printf '%s\0' "$MNT/lineage/$evil" | cmp - "$WORK/path" || fail "ckptfs-restart-path changes a name that is for a program"
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
