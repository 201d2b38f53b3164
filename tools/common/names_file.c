#include "tools/names_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/analyze_complain.h"

int names_file_read(const char *path, char ret[NAMES_TEXT_MAX + 1])
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct names *names;
	size_t len = 0;
	char why[200];
	ssize_t n;
	int r;

	do {
		n = fd < 0 ? -1 : read(fd, ret + len, NAMES_TEXT_MAX + 1 - len);
		len += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && len <= NAMES_TEXT_MAX) || (n < 0 && fd >= 0 && errno == EINTR));
	if (n < 0)
		return complain(-errno, "--names %s: cannot be read", path);
	if (len > NAMES_TEXT_MAX)
		return refuse("--names %s: has more than %u bytes", path, NAMES_TEXT_MAX);
	if (memchr(ret, 0, len))
		return refuse("--names %s: is no text", path);
	ret[len] = 0;
	r = names_parse(ret, &names, why, sizeof(why));
	if (r < 0)
		return refuse("--names %s: %s", path, r == -EINVAL ? why : strerror(-r));
	names_free(names); /* ckptfs-classify parses them again, where time is limited */
	return 0;
}
