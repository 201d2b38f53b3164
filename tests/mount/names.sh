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
# checked ARGUMENT...: as try, of ckptfs-doctor; its exit status depends on the machine
checked() {
	local r=0 as=
	"$tools/ckptfs-doctor" "$@" >"$WORK/out" 2>"$WORK/said" </dev/null || r=$?
	[ $r -le 2 ] || fail_showing "ckptfs-doctor ${*@Q} ended with $r"
	[ "${1:-}" != --json ] || as=json
	harmless "ckptfs-doctor: standard output" "$WORK/out" $as
	harmless "ckptfs-doctor: messages" "$WORK/said"
	grep -qF FORGED "$WORK/out" || fail_showing "ckptfs-doctor ${*@Q} does not tell of the name"
	nr=$((nr + 1))
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
mkdir "$MNT/$evil" "$MNT/other" "$MNT/lineage" "$MNT/lineage/$evil" "$MNT/lineage/newer"
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
printf x >"$MNT/lineage/$evil/empty.$evil" # of another pack or frame than the rest
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

# Stores that are made, and are not.
mkdir "$WORK/init.$evil" "$WORK/$evil.d"
try 0 ckptfs-init "$WORK/init.$evil"
try 2 ckptfs-init "$WORK/init.$evil" # once more
try 0 ckptfs-init "$WORK/$evil.d/$evil"
try 2 ckptfs-init "$WORK/no/$evil"
try 2 ckptfs-init "$WORK/$evil.d" # is not empty
try 1 ckptfs-init --hash "$evil" "$WORK/init"
try 1 ckptfs-init --dedup "$evil" "$WORK/init"
[ ! -x "$CKPTFS_BUILD/mpi-agent/ckptfs-agent" ] || try 2 ckptfs-init --cluster "$WORK/$evil.d/key" "$WORK/init"
try 1 ckptfs "$evil"
try 1 ckptfs tier "$evil" "dir:$WORK"
for form in '' --json --quiet; do
	checked ${form:+"$form"} "$WORK/no/$evil"
	checked ${form:+"$form"} "$WORK/init.$evil" "$WORK/no/$evil"
done
echo "ok stores"

# Tiers and checkpoints that do not exist.
mkdir "$WORK/tier" "$WORK/tier.$evil"
try 2 ckptfs-tier list "dir:$WORK/no/$evil"
try 2 ckptfs-tier verify "dir:$WORK/tier.$evil" "$evil"
try 2 ckptfs-tier get "dir:$WORK/tier" "$evil" "$WORK/got"
try 2 ckptfs-tier get "dir:$WORK/tier" other "$WORK/no/$evil/got"
try 2 ckptfs-gc --tier "dir:$WORK/no/$evil"
try 1 ckptfs-gc "dir:$WORK/tier.$evil"
unharmed 1 ckptfs-gc --tier "$evil"
for action in list verify usage probe get; do
	more=()
	[ $action != get ] || more=(other "$WORK/got")
	unharmed 1 ckptfs-tier $action "$evil" "${more[@]}"
	unharmed 1 ckptfs-tier $action "s3://$evil" "${more[@]}"
	try 2 ckptfs-tier $action --tier-config "$WORK/no/$evil" s3://bucket/prefix "${more[@]}"
done

# A tier that exists, of a store with such names.
"$tools/ckptfs-seal" -q "$MNT/lineage/newer"
fs_umount
"$(program tier_fill)" "$STORE" "$WORK/tier.$evil" >"$WORK/filled" || fail "cannot fill the tier"
fs_mount
url="dir:$WORK/tier.$evil"
for json in '' --json; do
	try 0 ckptfs-tier list ${json:+"$json"} "$url"
	try 0 ckptfs-tier verify ${json:+"$json"} "$url"
	try 0 ckptfs-tier verify ${json:+"$json"} "$url" "lineage/$evil"
	try 0 ckptfs-tier usage ${json:+"$json"} "$url"
	try 0 ckptfs-tier probe ${json:+"$json"} "$url"
	unharmed 0 ckptfs-gc --tier ${json:+"$json"} "$url"
	try 0 ckptfs-gc --tier ${json:+"$json"} --keep-last 1 "$url"
done
try 0 ckptfs-tier get "$url" "lineage/$evil" "$WORK/got.$evil"
cmp "$MNT/lineage/$evil/$evil" "$WORK/got.$evil/$evil" || fail "something else is restored"
try 2 ckptfs-tier get "$url" "lineage/$evil" "$WORK/got.$evil" # once more
mkdir "$WORK/plain.$evil"
try 2 ckptfs-tier get --quiet "$url" "lineage/$evil" "$WORK/plain.$evil/no/got"
on_terminal 0 ckptfs-tier get "$url" "lineage/$evil" "$WORK/again.$evil"
on_terminal 0 ckptfs-tier verify "$url"
on_terminal 0 ckptfs-gc --tier --keep-last 1 "$url"
touch "$WORK/tier.$evil/sealed/$evil" "$WORK/tier.$evil/$evil"
unharmed 0 ckptfs-tier usage "$url"
for manifest in "$WORK/tier.$evil"/sealed/*/*1; do cp "$manifest" "$WORK/manifest"; done
flip "$manifest" 60
try 3 ckptfs-tier list --json "$url"
try 3 ckptfs-tier list "$url"
cp "$WORK/manifest" "$manifest"
find "$WORK/tier.$evil/packs" -type f -exec truncate -s 100000 {} +
for json in '' --json; do
	try 3 ckptfs-tier verify ${json:+"$json"} "$url"
	unharmed 0 ckptfs-tier usage ${json:+"$json"} "$url"
done
try 3 ckptfs-tier get "$url" "lineage/$evil" "$WORK/damaged"
try 0 ckptfs-gc --tier --keep-last 1 --delete "$url"
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
for form in '' --json; do
	checked ${form:+"$form"} "$WORK/$evil"
	checked ${form:+"$form"} "$WORK/second.$evil"
	checked ${form:+"$form"}
done
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
