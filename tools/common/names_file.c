/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/names_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

static char why[256]; /* one thread parses options */

int names_file_parse(const struct conf_key *k, void *conf, const char *path, const char **ret_why)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct names_file *f = conf_field(k, conf);
	struct names *names;
	size_t len = 0;
	ssize_t n;
	int r;

	*ret_why = why;
	do {
		n = fd < 0 ? -1 : read(fd, f->text + len, NAMES_TEXT_MAX + 1 - len);
		len += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && len <= NAMES_TEXT_MAX) || (n < 0 && fd >= 0 && errno == EINTR));
	if (n < 0) {
		snprintf(why, sizeof(why), "cannot be read: %s", strerror(errno));
		return -EINVAL;
	}
	if (len > NAMES_TEXT_MAX || memchr(f->text, 0, len)) {
		snprintf(why, sizeof(why), len > NAMES_TEXT_MAX ? "has more than %u bytes" : "is not a text file",
			 NAMES_TEXT_MAX);
		return -EINVAL;
	}
	f->text[len] = 0;
	r = names_parse(f->text, &names, why, sizeof(why));
	if (r < 0)
		return r;
	names_free(names); /* ckptfs-classify, which limits its CPU time, parses and applies them */
	f->is_given = true;
	return 0;
}
