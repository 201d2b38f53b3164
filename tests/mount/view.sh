#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# .ckptfs/nodes: where it is and where not, and what a mount makes of another node that lies. What nodes really have is in tests/cluster/view.sh.
. "$(dirname "$0")/lib.sh"
need_mount
need_cluster

stat=$CKPTFS_BUILD/tools/ckptfs-stat
head -c 32 /dev/urandom >"$WORK/key"
copies() { "$stat" --json "$MNT" | "$PYTHON" -c 'import json, sys
print(json.load(sys.stdin)["cluster"]["replicas_cached"])'; }
nodes() { "$stat" --json "$MNT" | "$PYTHON" -c 'import json, sys
print(json.load(sys.stdin)["cluster"]["nodes"])'; }

# Only in a store of a cluster: in others the name is like any other.
fs_mount
[ ! -e "$MNT/.ckptfs" ] || fail "a store of its own shows other nodes"
mkdir "$MNT/.ckptfs"
rmdir "$MNT/.ckptfs"
fs_umount
rm -r "$STORE"
fs_mount "cluster=$WORK/key"
[ "$(ls "$MNT/.ckptfs")" = nodes ] || fail ".ckptfs has $(ls "$MNT/.ckptfs")"
[ "$(find "$MNT/.ckptfs/nodes/" -type l | wc -l)" = 1 ] || fail "without an agent there is $(ls "$MNT/.ckptfs/nodes")"
[ -z "$(ls -A "$MNT")" ] || fail "the root has $(ls -A "$MNT")"
! ln -s nowhere "$MNT/.ckptfs" 2>/dev/null || fail "the name can be taken"
"$PYTHON" - "$MNT" <<'END'
import errno, os, sys
d = sys.argv[1]
open(d + "/own", "w").close()
for change in (lambda: os.rename(d + "/own", d + "/.ckptfs"), lambda: os.link(d + "/own", d + "/.ckptfs"), lambda: os.rmdir(d + "/.ckptfs"),
               lambda: os.rename(d + "/.ckptfs", d + "/mine"), lambda: os.chmod(d + "/.ckptfs/nodes", 0o777),
               lambda: os.setxattr(d + "/.ckptfs/nodes", "user.a", b"b"), lambda: open(d + "/.ckptfs/new", "w"), lambda: os.utime(d + "/.ckptfs"),
               lambda: os.open(d + "/.ckptfs/nodes", os.O_TMPFILE | os.O_RDWR)):
    try:
        change()
        raise SystemExit("changed")
    except OSError as e:
        assert e.errno in (errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EOPNOTSUPP), e
assert os.listxattr(d + "/.ckptfs/nodes") == []
END
fs_umount
fs_sound "with names that none may take"
rm -r "$STORE"

# A node that tells the truth, and what is made of it when it does not. Nothing is left of what is not whole.
fs_mount "cluster=$WORK/key"
echo true >"$WORK/lie"
"$PYTHON" "$HERE/liar.py" "$STORE/agent.sock" "$WORK/lie" >"$WORK/liar" 2>&1 &
LIAR=$!
until [ "$(nodes)" = 2 ]; do
	running "$LIAR" || fail "the other node ended: $(cat "$WORK/liar")"
	sleep 0.05
done
there=$MNT/.ckptfs/nodes/other
lies() { echo "$1" >"$WORK/lie"; } # WORD: from now on; what is not found is asked for again
for lie in path endless short never seal twice up gone; do
	lies $lie
	! stat "$there/a/b/file" 2>"$WORK/said" >&2 || fail "$lie: accepted"
	[ "$(copies)" = 0 ] || fail "$lie: $(copies) copies"
	running "$LIAR" || fail "$lie: $(cat "$WORK/liar")"
done
lies busy
[ "$(cd "$there" && find . | sort | tr '\n' ' ')" = ". ./a ./a/b ./a/b/d ./a/b/d/link ./a/b/file " ] || fail "there is $(find "$there")"
[ "$(readlink "$there/a/b/d/link")" = ../file ] || fail "the link leads to $(readlink "$there/a/b/d/link")"
[ "$(command stat -c '%a %Y %u' "$there/a/b/d")" = "700 0 0" ] || fail "attributes: $(command stat -c '%a %Y %u' "$there/a/b/d")"
[ -e "$there~6f746865720000000000000000000000/a/b/file" ] || fail "not found by its whole name"
[ ! -e "$there~6f746865720000000000000000000001" ] || fail "another id is found"
[ "$(copies)" = 1 ] || fail "$(copies) copies"
as_nobody ls "$MNT/.ckptfs/nodes" >"$WORK/out" || fail "names of nodes are for all users"
for dir in "$there" "$there/a"; do # what may be a user's there
	! as_nobody ls "$dir" 2>"$WORK/said" >&2 || fail "any user may list $dir"
done
as_nobody stat "$there/a/b" >"$WORK/out" || fail "a user that knows the path cannot pass"
kill "$LIAR"
wait "$LIAR" 2>/dev/null || true
until [ "$(nodes)" = 0 ]; do sleep 0.05; done
[ -e "$there/a/b/file" ] || fail "a copy is not shown when its node is away"
fs_remount
[ -e "$there/a/b/file" ] || fail "a copy is not shown after a remount"
fs_umount
fs_sound "with a copy"
