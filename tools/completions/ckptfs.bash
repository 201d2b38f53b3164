# SPDX-License-Identifier: GPL-3.0-or-later
# bash completion for the commands of ckptfs

_ckptfs_mounts=/proc/mounts # other users choose the names in it

_ckptfs_mountpoints() { # WORD: completes mountpoints that begin with it, plain or quoted
	local point type quoted
	while read -r _ point type _; do
		[[ $type == fuse.ckptfs ]] || continue
		# shellcheck disable=SC2059 # decodes \ooo; %b would take \0401 for one character
		printf -v point "${point//%/%%}"
		printf -v quoted %q "$point"
		[[ $point == "$1"* || $quoted == "$1"* ]] && COMPREPLY+=("$quoted")
	done <"$_ckptfs_mounts"
}

# ckptfs COMMAND: the commands come from the table of the program in PATH, never from one that was typed as ./ckptfs. Behind
# a command, completes as its program, which COMP_WORDS then has instead.
_ckptfs_command() {
	local row name line at=1 word
	while [[ $at -lt $COMP_CWORD && ${COMP_WORDS[at]} == -* ]]; do
		at=$((at + 1))
	done
	word=${COMP_WORDS[at]}
	while IFS= read -r row; do
		name=${row%%$'\t'*} line=${row#*$'\t'} line=${line%$'\t'*}
		if [[ $at == "$COMP_CWORD" ]]; then
			[[ $name != "$word"* ]] || COMPREPLY+=("$name")
		elif [[ $name == "$word" && $name == help ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(ckptfs help --commands 2>/dev/null | cut -f 1)" -- "${COMP_WORDS[COMP_CWORD]}")
		elif [[ $name == "$word" && $line ]]; then
			COMP_WORDS=("${line%% *}" "${COMP_WORDS[@]:at+1}")
			COMP_CWORD=$((COMP_CWORD - at))
			_ckptfs
		fi
	done < <(ckptfs help --commands 2>/dev/null)
	[[ $at != "$COMP_CWORD" || $word != -* ]] ||
		mapfile -t COMPREPLY < <(compgen -W "-h --help -V --version" -- "$word")
}

_ckptfs() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[0]##*/}
	local options="agent= autoseal= cache= cdc= chunking=page chunking=cdc chunking=auto cluster= commit= compact=off compact=auto compact_budget= compact_group= compact_names= compress=none compress=lz4 compress=zstd
		compress=auto dedup=auto dedup=global dedup=group dedup=user dirty= hash=auto hash=xxh3 hash=sha256 hash=clmul log=
		log_level=error log_level=warning log_level=notice log_level=info log_level=debug metrics= nonempty page= pending= private
		protect= read_rate= replicas= tier= tier_cache= tier_config= tier_parallel= tier_rate= tier_takeover tier_timeout= write_rate= verify writeback ro noatime nosuid nodev noexec"
	local flags actions files=-f

	if [[ $command == ckptfs ]]; then
		_ckptfs_command
		return
	fi
	case $command in
	mount.ckptfs) flags="-d -f -n -o -s -v --foreground" files=-d ;;
	umount.ckptfs) flags="-f -l -n -r -v --timeout --flush" ;;
	fsck.ckptfs) flags="-a -n -p -y -v --read-data --rebuild --json --cache" files=-d ;;
	ckptfs-agent) flags="--forget --mount --no-lookup --remember --repair --socket --status" ;;
	ckptfs-analyze) flags="--chunking --compress --page --min --avg --max --dedup --fsync --measure --no-compact --scheme --group --block --chain --budget --names --variables --rivals --images
		--json -q --quiet" ;;
	ckptfs-compact) flags="--scheme --group --block --chain --budget --names --rate --replicas --beneath --dry-run --background --pause --resume --json -q --quiet" ;;
	ckptfs-diff) flags="--summary --parts --unit --json -q --quiet" ;;
	ckptfs-doctor) flags="--json -q --quiet" files=-d ;;
	ckptfs-gc) flags="--delete --budget --rate --move-below --place --local --policies --keep-last --keep-every --keep-within --keep-tagged --drop --gc --verify
		--tier --tier-config --forget-missing --json -q --quiet" files=-d ;;
	ckptfs-init) flags="--hash --dedup --cluster -q --quiet" files=-d ;;
	ckptfs-restart-path) flags="--quick --no-verify -z --null -q --quiet" files=-d ;;
	ckptfs-run)
		flags="--store --mount -o --shared --flush-to --signal-before --time-limit --grace --on-daemon-death --signal --job --nodes --launcher --no-agent --hold --agent -q --quiet"
		;;
	ckptfs-scrub) flags="--rate --budget --restart --json -q --quiet" ;;
	ckptfs-seal) flags="--unseal --wait --force --no-seal --list --json -q --quiet" files=-d ;;
	ckptfs-stat) flags="--html --if-deleted --json --prometheus --quick --sealed --users --variables -v --verbose --verify --watch" ;;
	ckptfs-tier) flags="--tier-config --cache --json -q --quiet --trust --no-owner --no-xattrs" actions="list verify usage probe get" ;;
	esac
	flags+=" -h --help -V --version"
	if [[ $prev == -o ]]; then
		local done= last=$cur
		[[ $cur == *,* ]] && done=${cur%,*}, last=${cur##*,}
		compopt -o nospace
		mapfile -t COMPREPLY < <(compgen -P "$done" -W "$options" -- "$last")
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$cur")
	elif [[ ${actions-} && $COMP_CWORD == 1 ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$actions" -- "$cur")
	elif [[ $prev == --@(keep-last|keep-every|keep-within|unit|page|min|avg|max|memory|cache|budget|rate|move-below|signal-before|time-limit|timeout|grace|job|nodes) ]]; then
		COMPREPLY=() # a size, a time or a number
	elif [[ $command == @(umount.ckptfs|ckptfs-scrub) || $prev == --mount && $command == ckptfs-agent ]]; then
		COMPREPLY=()
		_ckptfs_mountpoints "$cur"
	else
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen $files -- "$cur")
	fi
} &&
	complete -F _ckptfs ckptfs mount.ckptfs umount.ckptfs fsck.ckptfs ckptfs-agent ckptfs-analyze ckptfs-compact ckptfs-diff ckptfs-doctor ckptfs-gc ckptfs-init ckptfs-restart-path ckptfs-run ckptfs-scrub ckptfs-seal ckptfs-stat ckptfs-tier
