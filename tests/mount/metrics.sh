#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The option metrics: the text of ckptfs-stat --prometheus over HTTP while the mount lasts, clear errors before it does,
# and a dashboard that asks for nothing else.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

helper=$CKPTFS_BUILD/fs/mount.ckptfs
stat=$CKPTFS_BUILD/tools/ckptfs-stat
dashboard=$HERE/../../docs/grafana.json

# A port that is free, and not one of those that the kernel gives to whoever asks for any.
port=$("$PYTHON" - <<'PY'
import random, socket
while True:
    port = random.randrange(20000, 30000)
    try:
        socket.create_server(("0.0.0.0", port)).close()
        print(port)
        break
    except OSError:
        pass
PY
)

# get URL [METHOD]: status, content type and body
get() {
	"$PYTHON" - "$@" <<'PY'
import sys, urllib.error, urllib.request
try:
    r = urllib.request.urlopen(urllib.request.Request(sys.argv[1], method=(sys.argv[2:] or ["GET"])[0]), timeout=20)
except urllib.error.HTTPError as e:
    r = e
print(r.status, r.headers["Content-Type"])
sys.stdout.write(r.read().decode())
PY
}
answers() { # URL CODE [METHOD]
	get "$1" ${3:+"$3"} >"$WORK/answer" || fail "$1 is not answered"
	[ "$(head -c 4 "$WORK/answer")" = "$2 " ] || fail "$1: $(head -n 1 "$WORK/answer") instead of $2"
}
refused() { # CODE REGEX OPTIONS
	local code=0
	"$helper" "$STORE" "$MNT" -o "$3" >"$WORK/said" 2>&1 || code=$?
	[ "$code" = "$1" ] || fail "-o $3: exit code $code, says: $(cat "$WORK/said")"
	grep -Eq "$2" "$WORK/said" || fail "-o $3: says $(cat "$WORK/said")"
	! mounted || fail "-o $3: mounted"
	[ ! -e "$STORE" ] || fail "-o $3: a store was made"
}

for bad in 0 65536 port host: ::1:80 :80 '[::1]'; do
	refused 1 "option metrics=.*: must be PORT, HOST:PORT or \[IPV6\]:PORT" "metrics=$bad"
done
refused 1 'option metrics=no.such.host.invalid:9: no.such.host.invalid' metrics=no.such.host.invalid:9
refused 32 'option metrics=192.0.2.1:9: not an address of this machine' metrics=192.0.2.1:9
"$PYTHON" -c '
import socket, sys, time
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("taken", flush=True)
time.sleep(600)' "$port" >"$WORK/taken" &
other=$!
until [ -s "$WORK/taken" ]; do sleep 0.05; done
refused 32 "option metrics=$port: another program listens there" "metrics=$port"
kill "$other"
wait "$other" 2>/dev/null || true
echo "ok wrong and taken addresses"

fs_mount "metrics=$port"
grep -q "metrics: answered at $port" "$WORK/daemon.log" || fail "the log does not say where"
! grep -q 'readable by every process' "$WORK/daemon.log" || fail "warns of a loopback address"
head -c 8M /dev/urandom >"$MNT/file"
cp "$MNT/file" "$MNT/copy"
sync "$MNT/copy"
get "http://127.0.0.1:$port/metrics" >"$WORK/served"
"$stat" --prometheus "$MNT" >"$WORK/printed"
[ "$(head -n 1 "$WORK/served")" = "200 text/plain; version=0.0.4; charset=utf-8" ] || fail "$(head -n 1 "$WORK/served")"

# The same text: every line but for the values that asking changes.
"$PYTHON" - "$WORK/served" "$WORK/printed" "$dashboard" <<'PY'
import json, re, sys
served = open(sys.argv[1]).read().splitlines()[1:]
printed = open(sys.argv[2]).read().splitlines()
def names(lines):
    return [l if l.startswith("#") else l.rsplit(" ", 1)[0] for l in lines if "ckptfs_request_seconds{" not in l
            and "ckptfs_request_seconds_" not in l]
assert names(served) == names(printed), (names(served), names(printed))
still = [l for l in served if re.match(r"ckptfs_(logical|stored|written_new|compressed)_", l)]
assert len(still) >= 4 and set(still) <= set(printed), still

# Well-formed: HELP, TYPE, then samples of that family.
family = None
for line in served:
    if m := re.fullmatch(r"# HELP (ckptfs_\w+) \S.*", line):
        family = m[1]
    elif m := re.fullmatch(r"# TYPE (ckptfs_\w+) (gauge|counter|summary)", line):
        assert m[1] == family, line
    else:
        m = re.fullmatch(r'(ckptfs_\w+)\{mountpoint="[^"]*"(,\w+="[^"]*")*\} [0-9.]+', line)
        assert m and re.sub(r"_(sum|count)$", "", m[1]) == family or m and m[1] == family, line

# The dashboard asks for what is there, by labels that are there.
exists = {l.split("{")[0] for l in served if not l.startswith("#")}
text = open(sys.argv[3]).read()
board = json.loads(text)
exprs = [t["expr"] for p in board["panels"] for t in p.get("targets", [])]
asked = {n for e in exprs for n in re.findall(r"ckptfs_\w+", e)}
assert len(exprs) > 10 and asked, exprs
assert asked <= exists, f"not served: {asked - exists}"
assert set(re.findall(r"ckptfs_\w+", text)) <= exists, "in texts of the dashboard"
labels = {l for e in exprs for inner in re.findall(r"\{([^}]*)\}", e) for l in re.findall(r"(\w+)\s*[=!]", inner)}
assert labels <= {"mountpoint", "request", "quantile"}, labels
ids = [p["id"] for p in board["panels"]]
assert len(ids) == len(set(ids)), ids
PY
echo "ok the same text, and a dashboard of it"

answers "http://127.0.0.1:$port/metrics" 200 HEAD
answers "http://127.0.0.1:$port/" 404
answers "http://127.0.0.1:$port/metrics/x" 404
answers "http://127.0.0.1:$port/metrics" 405 POST

# Garbage and connections that say nothing harm nobody, and do not keep the mount.
"$PYTHON" - "$port" <<'PY'
import os, socket, sys
for junk in (b"", b"\0" * 100, b"GET", b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 100000, os.urandom(5000)):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) as s:
        s.settimeout(2)  # it may wait for more
        try:
            s.sendall(junk)
            s.shutdown(socket.SHUT_WR)
            s.recv(100)
        except OSError:
            pass
PY
exec 5<>"/dev/tcp/127.0.0.1/$port"
answers "http://127.0.0.1:$port/metrics" 200 # one silent connection does not stop others
fs_umount
exec 5>&-
! get "http://127.0.0.1:$port/metrics" >"$WORK/said" 2>&1 || fail "served after the mount"
echo "ok ends with the mount"

# At once again on the same port, and on others.
fs_mount "metrics=localhost:$port"
fs_remount "metrics=0.0.0.0:$port"
answers "http://127.0.0.1:$port/metrics" 200
grep -q 'readable by every process that can reach 0.0.0.0' "$WORK/daemon.log" || fail "no warning that every host can read it"
fs_umount
if [ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6; then
	fs_mount "metrics=[::1]:$port"
	answers "http://[::1]:$port/metrics" 200
	fs_umount
fi

# As a daemon: the parent returns 0 only when it is served.
"$helper" "$STORE" "$MNT" -o "metrics=$port,log=$WORK/log"
answers "http://127.0.0.1:$port/metrics" 200
"$CKPTFS_BUILD/tools/umount.ckptfs" "$MNT"
