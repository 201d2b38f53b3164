#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Round trips with tar, rsync and cp -a: onto the mount, on it, and back; nothing that they carry is lost.
. "$(dirname "$0")/../mount/lib.sh"
need_root
need tar rsync setfattr getfattr setfacl getfacl

build() { # in the current directory
	mkdir -p a/b c
	head -c 2500003 /dev/urandom >a/big
	head -c 777 /dev/urandom >a/b/small
	: >a/empty
	ln a/big c/hard
	ln -s ../a/big c/soft
	mkfifo c/fifo
	mknod c/null c 1 3
	truncate -s 16M a/sparse
	head -c 100000 /dev/urandom | dd of=a/sparse bs=1000 seek=5000 conv=notrunc status=none
	head -c 4096 /dev/urandom | dd of=a/sparse bs=4096 seek=4000 conv=notrunc status=none
	chown 1234:4321 a/b/small
	chmod 4711 a/b/small
	chmod 1770 c
	chmod 2750 a/b
	setfattr -n user.note -v "some text" a/big
	setfattr -n trusted.note -v root a/b
	setfattr -n security.test -v x a/empty
	setfacl -m u:77:rw,g:88:r a/empty
	setfacl -d -m u:77:rwx a/b
	touch -d '2011-11-11 11:11:11.123456789' a/b/small
	touch -h -d '2012-12-12 12:12:12.5' c/soft
	for i in $(seq 150); do echo "$i" >"a/b/f$i"; done
	touch -d '2001-02-03 04:05:06.000000007' a a/b c
}

look() { # DIRECTORY: all that a copy must carry
	(
		cd "$1"
		find . -mindepth 1 ! -type d -printf '%p %y %m %U %G %n %s %T@ %l\n' | sort
		find . -mindepth 1 -type d -printf '%p %y %m %U %G %T@\n' | sort
		find . -print0 | sort -z | xargs -0 getfattr -dhm- 2>/dev/null
		find . ! -type l -print0 | sort -z | xargs -0 getfacl -pn 2>/dev/null
		find . -type f -exec sha256sum {} + | sort
		[ "$(stat -c %i a/big)" = "$(stat -c %i c/hard)" ] && echo "hard link"
		[ "$(($(stat -c %b a/sparse) * 512))" -lt 2000000 ] && echo "sparse"
	)
}

same() { # WHAT DIRECTORY
	look "$2" >"$WORK/seen"
	diff -u "$WORK/want" "$WORK/seen" >&2 || fail "$1 has lost something"
	echo "ok $1"
}

fs_mount
mkdir "$WORK/source" "$WORK/back"
(cd "$WORK/source" && build)
look "$WORK/source" >"$WORK/want"

cp -a --sparse=always "$WORK/source" "$MNT/cp"
same "cp -a" "$MNT/cp"
cp -a "$MNT/cp" "$MNT/cp2"
same "cp -a on the mount" "$MNT/cp2"
mkdir "$MNT/tar"
tar -C "$WORK/source" --xattrs --xattrs-include='*' --acls --sparse -cf - . |
	tar -C "$MNT/tar" --xattrs --xattrs-include='*' --acls -xpf -
same tar "$MNT/tar"
rsync -aHAXS --numeric-ids "$WORK/source/" "$MNT/rsync/"
same rsync "$MNT/rsync"
out=$(rsync -aHAXS --numeric-ids --checksum --itemize-changes --dry-run "$WORK/source/" "$MNT/rsync/")
[ -z "$out" ] || fail "rsync would do again: $out"

fs_remount
for d in cp cp2 tar rsync; do
	same "$d after a remount" "$MNT/$d"
done
rsync -aHAXS --numeric-ids "$MNT/tar/" "$WORK/back/"
same "rsync back" "$WORK/back"
rm -r "$MNT/cp" "$MNT/tar"
same "a copy whose brothers were removed" "$MNT/rsync"
fs_umount
