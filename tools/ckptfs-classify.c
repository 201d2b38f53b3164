/*
 * ckptfs-classify: what variables a file has, and where. Started by those who want to know (store/classify/classify.h), not by
 * hand: the file is standard input, a pipe standard output. It restricts itself before it looks at the file.
 *
 * Exit status: 0 it has said what it found, 1 it could not.
 */
#include <errno.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "store/classify/format_hdf5.h"
#include "store/classify/formats.h"
#include "store/classify/sandbox.h"
#include "store/classify/typed_format.h"

#define MEMORY GiB(1) /* besides the file */
#define CPU_SECONDS 60

static const char *reason_of(int r)
{
	switch (r) {
	case -EBADMSG:
		return "it is damaged, or not what it says it is";
	case -E2BIG:
		return "it has more variables or pieces than are looked at";
	case -ENOMEM:
		return "there is too little memory to look at it";
	case -EOPNOTSUPP:
		return "this is a build without HDF5";
	default:
		return "it cannot be read";
	}
}

static int say(const struct typed *t, enum typed_verdict verdict, const char *reason)
{
	_cleanup_(freep) uint8_t *said = NULL;
	size_t len, n = 0;

	if (typed_encode(t, verdict, reason, &said, &len) < 0)
		return EXIT_FAILURE;
	while (n < len) {
		ssize_t written = write(STDOUT_FILENO, said + n, len - n);

		if (written < 0 && errno != EINTR)
			return EXIT_FAILURE;
		n += written > 0 ? (size_t)written : 0;
	}
	return EXIT_SUCCESS;
}

static int classify(const uint8_t *p, uint64_t size)
{
	struct typed t = TYPED_EMPTY(size);
	int r = format_hdf5(p, size, &t), status;

	if (r == 0)
		r = format_any(p, size, &t);
	status = say(&t, r > 0 ? TYPED_KNOWN : r == 0 ? TYPED_UNKNOWN : TYPED_REFUSED, reason_of(r));
	typed_release(&t);
	return status;
}

static int help(FILE *to)
{
	fputs("Usage: ckptfs-classify <FILE >PIPE\n"
	      "Says, for other commands of ckptfs, what variables a file has and where. Not to be called by hand.\n\n"
	      "  -h, --help     this text\n"
	      "  -V, --version  the version\n",
	      to);
	return to == stdout ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char *argv[])
{
	struct stat st;
	void *p = NULL;

	if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
		return puts("ckptfs-classify " CKPTFS_VERSION) < 0;
	if (argc > 1)
		return help(strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ? stdout : stderr);
	if (fstat(STDIN_FILENO, &st) < 0 || !S_ISREG(st.st_mode))
		return help(stderr);
	if (st.st_size > 0)
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, STDIN_FILENO, 0);
	if (p == MAP_FAILED) {
		perror("ckptfs-classify: mmap");
		return EXIT_FAILURE;
	}
	format_hdf5_prepare();
	if (syscall(SYS_close_range, 3u, ~0u, 0) < 0 || sandbox_enter((uint64_t)st.st_size + MEMORY, CPU_SECONDS) < 0) {
		perror("ckptfs-classify: cannot restrict itself");
		return EXIT_FAILURE;
	}
	/* Without what libraries do in the end: it may not be permitted, and nothing is left to tidy. */
	_exit(p ? classify(p, (uint64_t)st.st_size) : say(&TYPED_EMPTY(0), TYPED_UNKNOWN, ""));
}
