# bash completion for the commands of ckptfs

_ckptfs() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
	local options="cache= chunking=page cluster= commit= compress=none compress=lz4 compress=zstd
		compress=auto dirty= hash=auto hash=xxh3 hash=sha256 log=
		log_level= metrics= nonempty page= private read_rate= write_rate= verify ro noatime nosuid nodev noexec"
	local flags

	case ${COMP_WORDS[0]##*/} in
	mount.ckptfs) flags="-f -n -o -s -v --foreground --help --version" ;;
	umount.ckptfs) flags="-f -l -v --help --version" ;;
	fsck.ckptfs) flags="-n -p -y -v --read-data --rebuild --json --cache --help --version" ;;
	ckptfs-analyze) flags="--page --min --avg --max --memory --json --quiet --help --version" ;;
	ckptfs-gc) flags="--delete --budget --rate --move-below --json --quiet --help --version" ;;
	ckptfs-stat) flags="--json --prometheus --watch --help --version" ;;
	esac
	if [[ $prev == -o ]]; then
		local done= last=$cur
		[[ $cur == *,* ]] && done=${cur%,*}, last=${cur##*,}
		compopt -o nospace
		COMPREPLY=($(compgen -P "$done" -W "$options" -- "$last"))
	elif [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$flags" -- "$cur"))
	elif [[ ${COMP_WORDS[0]##*/} == umount.ckptfs ]]; then
		COMPREPLY=($(compgen -W "$(awk '$3 == "fuse.ckptfs" { print $2 }' /proc/mounts)" -- "$cur"))
	else
		compopt -o filenames
		COMPREPLY=($(compgen -f -- "$cur"))
	fi
} &&
	complete -F _ckptfs mount.ckptfs umount.ckptfs fsck.ckptfs ckptfs-analyze ckptfs-gc ckptfs-stat
