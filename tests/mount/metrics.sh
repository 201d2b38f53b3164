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

# A port that is free, and not one of those that the kernel assigns by itself.
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

made=$(date +%s)
fs_mount "metrics=$port"
grep -q "metrics: answered at $port" "$WORK/daemon.log" || fail "the log does not say where"
! grep -q 'readable by every process' "$WORK/daemon.log" || fail "warns of a loopback address"
head -c 8M /dev/urandom >"$MNT/file"
cp "$MNT/file" "$MNT/copy"
sync "$MNT/copy"
mkdir "$MNT/step"
cp "$MNT/file" "$MNT/step/rank0"
head -c 1M /dev/urandom >"$MNT/step/rank1"
before=$(date +%s)
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/step"
get "http://127.0.0.1:$port/metrics" >"$WORK/served"
"$stat" --prometheus "$MNT" >"$WORK/printed"
[ "$(head -n 1 "$WORK/served")" = "200 text/plain; version=0.0.4; charset=utf-8" ] || fail "$(head -n 1 "$WORK/served")"

# The same text: every line but for the values that asking changes.
"$PYTHON" - "$WORK/served" "$WORK/printed" "$dashboard" "$DAEMON" "$STORE" "$before" "$made" <<'PY'
import json, os, re, sys, time
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
    if m := re.fullmatch(r"# HELP ((?:ckptfs|process)_\w+) \S.*", line):
        family = m[1]
    elif m := re.fullmatch(r"# TYPE ((?:ckptfs|process)_\w+) (gauge|counter|histogram)", line):
        assert m[1] == family, line
    else:
        m = re.fullmatch(r'((?:ckptfs|process)_\w+)\{mountpoint="[^"]*"(,\w+="[^"]*")*\} [0-9.]+', line)
        assert m and re.sub(r"_(bucket|sum|count)$", "", m[1]) == family or m and m[1] == family, line

# Histograms: buckets grow, and the last one is the count. Causes: one metric, and no byte has two.
value = lambda name, **labels: [float(l.rsplit(" ", 1)[1]) for l in served if re.match(name + r"\{", l) and all(f'{k}="{v}"' in l for k, v in labels.items())]
buckets = value("ckptfs_request_seconds_bucket", request="write")
assert len(buckets) == 9 and buckets == sorted(buckets) and buckets[-1] == value("ckptfs_request_seconds_count", request="write")[0] > 0, buckets
assert buckets[0] < buckets[-1] or buckets[0] > 0, buckets
causes = value("ckptfs_written_cause_bytes_total")
assert len(causes) == 7 and sum(causes) == value("ckptfs_written_bytes_total")[0], causes
assert len(value("ckptfs_build_info")) == 1 and 'version="' in next(l for l in served if l.startswith("ckptfs_build_info")), "build_info"

# The process: the names that every program has, and no prefix. What the kernel says of the daemon is of the same moment,
# but for what answering takes.
for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"):
    assert len(value("process_" + name)) == 1 and value("process_" + name)[0] > 0, name
proc = "/proc/" + sys.argv[4]
assert value("process_open_fds")[0] < len(os.listdir(proc + "/fd")) + 10, os.listdir(proc + "/fd")
assert f"Max open files {value('process_max_fds')[0]:.0f} " in re.sub(" +", " ", open(proc + "/limits").read())
assert value("process_start_time_seconds")[0] <= time.time()

# The disk under the store: what others write there changes its free space.
disk = os.statvfs(sys.argv[5])
assert value("ckptfs_disk_size_bytes") == [disk.f_blocks * disk.f_frsize]
assert 0 < value("ckptfs_disk_available_bytes")[0] < value("ckptfs_disk_size_bytes")[0]
assert len(value("ckptfs_disk_age_seconds")) == 1

# A store that was never scrubbed is as long without a scrub as it exists.
assert value("ckptfs_scrub_last_timestamp_seconds") == [0]
assert 0 < value("ckptfs_scrub_age_seconds")[0] <= time.time() - float(sys.argv[7]), "scrub age"

# One checkpoint of 9 MiB was sealed, of which 1 MiB is new.
assert value("ckptfs_sealed_checkpoints") == value("ckptfs_seals_total") == [1]
assert value("ckptfs_sealed_bytes_total") == [9 << 20]
assert value("ckptfs_sealed_new_bytes_total") == [1 << 20]
assert float(sys.argv[6]) <= value("ckptfs_seal_last_timestamp_seconds")[0] <= time.time()

# The dashboard asks for what is there, by labels that are there.
exists = {l.split("{")[0] for l in served if not l.startswith("#")}
text = open(sys.argv[3]).read()
board = json.loads(text)
exprs = [t["expr"] for p in board["panels"] for t in p.get("targets", [])]
asked = {n for e in exprs for n in re.findall(r"\b(?:ckptfs|process)_\w+", e)}
assert len(exprs) > 10 and asked, exprs
assert asked <= exists, f"not served: {asked - exists}"
assert set(re.findall(r"ckptfs_\w+", text)) <= exists, "in texts of the dashboard"
labels = {l for e in exprs for inner in re.findall(r"\{([^}]*)\}", e) for l in re.findall(r"(\w+)\s*[=!]", inner)}
assert labels <= {"mountpoint", "request", "cause", "le"}, labels
ids = [p["id"] for p in board["panels"]]
assert len(ids) == len(set(ids)), ids
rows = [p["title"] for p in board["panels"] if p["type"] == "row"]
assert {"Sealed checkpoints", "Scrub", "Cluster", "Tier", "Daemon"} <= set(rows), rows
places = [(x, y) for p in board["panels"] for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"])
          for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])]
assert len(places) == len(set(places)) and max(x for x, y in places) < 24, "panels overlap"
assert [p["gridPos"]["y"] for p in board["panels"]] == sorted(p["gridPos"]["y"] for p in board["panels"]), "not in order"
PY
echo "ok the same text, and a dashboard of it"
if command -v promtool >/dev/null; then
	sed 1d "$WORK/served" | promtool check metrics >"$WORK/said" 2>&1 || fail "promtool check metrics: $(cat "$WORK/said")"
	[ ! -s "$WORK/said" ] || fail "promtool check metrics says: $(cat "$WORK/said")"
	promtool check rules "$HERE/../../docs/alerts.yml" >"$WORK/said" 2>&1 || fail "promtool check rules: $(cat "$WORK/said")"
	"$PYTHON" - "$WORK/served" "$HERE/../../docs/alerts.yml" <<'PY'
import re, sys
served, rules = (open(p).read() for p in sys.argv[1:])
asked = set(re.findall(r"\b(?:ckptfs|process)_\w+", rules))
missing = {n for n in asked if not re.search(rf"^{n}\{{", served, re.M)}
assert len(asked) > 15 and not missing, missing
PY
	(cd "$HERE" && promtool test rules metrics-alerts.yml) >"$WORK/said" 2>&1 || fail "promtool test rules: $(cat "$WORK/said")"
	echo "ok promtool"
else
	skip_part "promtool is not installed"
fi

before=$(date +%s.%N)
"$CKPTFS_BUILD/tools/ckptfs-scrub" --quiet "$MNT"
get "http://127.0.0.1:$port/metrics" >"$WORK/served"
"$PYTHON" - "$WORK/served" "$before" <<'PY' || fail "the scrub is not in the metrics: $(grep ^ckptfs_scrub "$WORK/served")"
import re, sys, time
value = {m[1]: float(m[2]) for m in re.finditer(r"^(ckptfs_scrub\w*)\{.*\} (.*)$", open(sys.argv[1]).read(), re.M)}
before = float(sys.argv[2])
assert before <= value["ckptfs_scrub_last_timestamp_seconds"] <= time.time()
assert 0 <= value["ckptfs_scrub_age_seconds"] <= time.time() - before
PY
echo "ok a scrub"

answers "http://127.0.0.1:$port/metrics" 200 HEAD
answers "http://127.0.0.1:$port/" 404
answers "http://127.0.0.1:$port/metrics/x" 404
answers "http://127.0.0.1:$port/metrics" 405 POST

# Garbage and silent connections do no harm, and do not keep the mount.
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
