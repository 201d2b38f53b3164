#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Several processes write one sqlite database with pages of 512 bytes and a rollback journal, as sqlite's own mptest does,
# without and with write-back: the only errors are those of a busy database, no reader sees half a transaction, and no
# transaction is lost.
. "$(dirname "$0")/../mount/lib.sh"
"$PYTHON" -c 'import sqlite3' 2>/dev/null || skip "$PYTHON has no sqlite3"
NR_CLIENTS=5
NR_TRANSACTIONS=${SQLITE_TRANSACTIONS:-60}

cat >"$WORK/client.py" <<'PY'
import random, sqlite3, sys

what, path = sys.argv[1:3]
NR_ACCOUNTS, TOTAL, NR_ROWS = 200, 200 * 1000, 40


def connect():
    db = sqlite3.connect(path, timeout=120, isolation_level=None)
    db.execute("PRAGMA page_size = 512")
    return db


if what == "create":
    db = connect()
    db.executescript(f"""
        CREATE TABLE account(id INTEGER PRIMARY KEY, n INTEGER, pad);
        WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM i LIMIT {NR_ACCOUNTS})
            INSERT INTO account SELECT x, {TOTAL // NR_ACCOUNTS}, randomblob(300) FROM i;
        CREATE TABLE entry(client, number, data);
        CREATE INDEX entry_of ON entry(client, number);
        CREATE TABLE counter(n);
        INSERT INTO counter VALUES (0);
    """)
    assert db.execute("PRAGMA page_size").fetchone() == (512,)
elif what == "check":
    db = connect()
    expected = [int(a) for a in sys.argv[3:]]  # transactions of each client
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert db.execute("SELECT sum(n), count(*) FROM account").fetchone() == (TOTAL, NR_ACCOUNTS)
    assert db.execute("SELECT n FROM counter").fetchone() == (sum(expected),)
    found = db.execute("SELECT client, count(*), count(DISTINCT number) FROM entry GROUP BY client ORDER BY client").fetchall()
    assert found == [(i, 3 * n, n) for i, n in enumerate(expected)], found
else:
    client, nr = int(what), int(sys.argv[3])
    rng = random.Random(client)
    db = connect()
    # Modes that go together in one database; a small cache spills pages, and half of the clients map the file.
    db.execute("PRAGMA journal_mode = " + ("DELETE", "TRUNCATE", "PERSIST")[client % 3])
    db.execute("PRAGMA synchronous = " + ("OFF", "NORMAL", "FULL")[client % 3])
    db.execute("PRAGMA cache_size = 20")
    db.execute(f"PRAGMA mmap_size = {(client % 2) << 26}")
    nr_busy = 0

    def transfer(number):
        db.execute("BEGIN " + rng.choice(("", "IMMEDIATE", "EXCLUSIVE")))
        for _ in range(20):
            a, b, n = rng.randint(1, NR_ACCOUNTS), rng.randint(1, NR_ACCOUNTS), rng.randint(1, 50)
            db.execute("UPDATE account SET n = n - ?, pad = randomblob(?) WHERE id = ?", (n, rng.randint(0, 1500), a))
            db.execute("UPDATE account SET n = n + ? WHERE id = ?", (n, b))
        for _ in range(3):
            db.execute("INSERT INTO entry VALUES (?, ?, randomblob(700))", (client, number))
        db.execute("UPDATE counter SET n = n + 1")
        if rng.random() < 0.1:  # undone, and then done
            db.execute("ROLLBACK")
            return False
        db.execute("COMMIT")
        return True

    def read(number):
        db.execute("BEGIN")
        seen = db.execute("SELECT sum(n), count(*) FROM account").fetchone()
        assert seen == (TOTAL, NR_ACCOUNTS), f"half a transaction: {seen}"
        (own,) = db.execute("SELECT count(DISTINCT number) FROM entry WHERE client = ?", (client,)).fetchone()
        assert own == number, f"{own} of {number} own transactions are there"
        db.execute("COMMIT")
        return True

    def table(number):
        db.execute("BEGIN")
        db.execute(f"DROP TABLE IF EXISTS own{client}")
        db.execute(f"CREATE TABLE own{client}(n)")
        db.executemany(f"INSERT INTO own{client} VALUES (?)", ((i,) for i in range(NR_ROWS)))
        db.execute("COMMIT")
        assert db.execute(f"SELECT sum(n) FROM own{client}").fetchone() == (NR_ROWS * (NR_ROWS - 1) // 2,)
        return True

    def until_done(what, number):
        """Again while the database is busy; no lock is held between two attempts."""
        global nr_busy
        while True:
            try:
                if what(number):
                    return
            except sqlite3.OperationalError as e:
                if "locked" not in str(e):
                    raise
                nr_busy += 1
                if db.in_transaction:
                    db.execute("ROLLBACK")

    for number in range(nr):
        until_done(transfer, number)
        until_done(read, number + 1)
        if number % 10 == client:
            until_done(table, number)
    print(f"client {client}: {nr} transactions, {nr_busy} times busy")
PY

for options in "" writeback; do
	plain && [ -n "$options" ] && continue
	fs_mount $options
	db=$MNT/db$options
	"$PYTHON" "$WORK/client.py" create "$db"
	pids=()
	for ((i = 0; i < NR_CLIENTS; i++)); do
		"$PYTHON" "$WORK/client.py" $i "$db" "$NR_TRANSACTIONS" &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || fail "a client has failed${options:+, with $options}"; done
	mapfile -t expected < <(for ((i = 0; i < NR_CLIENTS; i++)); do echo "$NR_TRANSACTIONS"; done)
	"$PYTHON" "$WORK/client.py" check "$db" "${expected[@]}" || fail "the database is not as it must be${options:+, with $options}"
	fs_umount
	fs_mount
	"$PYTHON" "$WORK/client.py" check "$db" "${expected[@]}" || fail "the database has changed by a remount${options:+, with $options}"
	fs_umount
	echo "ok ${options:-write-through}"
done
