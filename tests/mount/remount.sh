#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What a remount must leave as it was, and a rebuilt index bring back: names, inode numbers, all attributes, xattrs, ACLs,
# holes, bytes.
. "$(dirname "$0")/lib.sh"
need_root
need getfattr setfattr getfacl setfacl

build() {
	mkdir -p d/e/f "$(printf 'n%.0s' $(seq 255))"
	head -c 3000001 /dev/urandom >d/big
	head -c 1 /dev/urandom >d/one
	: >d/empty
	truncate -s 1T d/sparse
	printf x | dd of=d/sparse bs=1 seek=1000000000000 conv=notrunc status=none
	printf x | dd of=d/sparse bs=1 seek=500001 conv=notrunc status=none
	ln d/big d/e/hard
	ln -s ../d/big d/e/soft
	ln -s "$(printf 't%.0s' $(seq 3000))" long
	mkfifo fifo
	mknod null c 1 3
	mknod disk b 259 70000
	"$PYTHON" -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
	chown 1234:4321 d/one
	chmod 6751 d/one
	chmod 1777 d/e
	chmod 2775 d/e/f
	setfattr -n user.text -v value d/big
	setfattr -n user.empty d/big
	setfattr -n trusted.t -v value d
	setfattr -n security.s -v value d/empty
	setfacl -m u:1234:rw,g:77:r d/empty
	setfacl -d -m u:99:rwx d/e
	echo inherits >d/e/acl
	touch -d '1969-12-31 12:00:00.123456789 UTC' d/empty
	touch -d '2106-02-07 07:00:00.987654321 UTC' d/one
	touch -h -d '2001-01-01 00:00:00.000000001 UTC' d/e/soft
	for i in $(seq 300); do echo "$i" >"d/e/f/file$i"; done
	for i in $(seq 1 3 300); do rm "d/e/f/file$i"; done
}

# Everything that can be seen, in a fixed order. Access times too: nothing is read but through this.
look() {
	find . -printf '%p %i %y %m %U %G %n %s %b %T@ %C@ %l %D\n' | sed 's/ [0-9]*$//' | sort
	find . -type b,c -exec stat -c '%n %t %T' {} + | sort
	find . -print0 | sort -z | xargs -0 getfattr -dhm- 2>/dev/null
	find . ! -type l -print0 | sort -z | xargs -0 getfacl -pn 2>/dev/null
	find . -type f ! -name sparse -exec sha256sum {} + | sort
	"$PYTHON" - <<-'PY'
	import os
	fd = os.open("d/sparse", os.O_RDONLY)
	pos, out = 0, []
	try:
	    while True:
	        pos = os.lseek(fd, pos, os.SEEK_DATA)
	        end = os.lseek(fd, pos, os.SEEK_HOLE)
	        out.append((pos, end, os.pread(fd, end - pos, pos).strip(b"\0")))
	        pos = end
	except OSError:
	    print(out)
	PY
}

fs_mount
(cd "$MNT" && build && sync -f . && look) >"$WORK/before"
for round in 1 2; do
	fs_remount
	(cd "$MNT" && look) >"$WORK/after"
	diff -u "$WORK/before" "$WORK/after" >&2 || fail "remount $round has changed something"
done

# No inode number is used again while a process may still refer to it.
if ! plain; then
	last=$(stat -c %i "$MNT/d/e/acl")
	rm "$MNT/d/e/acl"
	fs_remount
	echo new >"$MNT/new"
	[ "$(stat -c %i "$MNT/new")" != "$last" ] || fail "an inode number was given twice"
fi
(cd "$MNT" && look) >"$WORK/before"
fs_umount
plain && exit 0

rm -r "$STORE/index"
fs_rebuild
fs_mount
(cd "$MNT" && look) >"$WORK/after"
diff -u "$WORK/before" "$WORK/after" >&2 || fail "the rebuilt index has lost something"
fs_umount
