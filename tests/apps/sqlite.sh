#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# sqlite3 in WAL mode: two processes write, a third reads, the database stays sound through a remount.
. "$(dirname "$0")/../mount/lib.sh"
need sqlite3

writer() { # NUMBER
	local i
	for i in $(seq 60); do
		cat <<-SQL
		.timeout 60000
		BEGIN IMMEDIATE;
		INSERT INTO t(writer, n, data) SELECT $1, $i, randomblob(2000) FROM (VALUES (1), (2), (3), (4), (5));
		UPDATE t SET data = zeroblob(4096) WHERE rowid % 7 = $i % 7 AND writer = $1;
		UPDATE counter SET n = n + 1;
		COMMIT;
		SQL
	done | sqlite3 "$MNT/db/test.db"
}

check() {
	local got
	got=$(sqlite3 "$MNT/db/test.db" "PRAGMA integrity_check; SELECT count(*) FROM t; SELECT n FROM counter;" | tr '\n' ' ')
	[ "$got" = "ok 600 120 " ] || fail "the database says: $got"
}

fs_mount
mkdir "$MNT/db"
sqlite3 "$MNT/db/test.db" "PRAGMA journal_mode = WAL; CREATE TABLE t(writer, n, data); CREATE INDEX i ON t(writer, n);
	CREATE TABLE counter(n); INSERT INTO counter VALUES (0);" >"$WORK/mode"
grep -qx wal "$WORK/mode" || fail "WAL mode is refused: $(cat "$WORK/mode")"
writer 1 &
a=$!
writer 2 &
b=$!
while kill -0 "$a" 2>/dev/null || kill -0 "$b" 2>/dev/null; do
	torn=$(sqlite3 -cmd '.timeout 60000' "$MNT/db/test.db" "SELECT (SELECT count(*) FROM t) - 5 * (SELECT n FROM counter)")
	[ "$torn" = 0 ] || fail "a reader saw half a transaction: $torn rows"
	sleep 0.1
done
wait "$a" || fail "writer 1"
wait "$b" || fail "writer 2"
check
fs_remount
check
sqlite3 "$MNT/db/test.db" "PRAGMA journal_mode = DELETE; VACUUM;" >/dev/null
check
fs_umount
