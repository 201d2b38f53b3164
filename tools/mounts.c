#include "tools/mounts.h"

#include <errno.h>
#include <string.h>

/* Blanks and the like are written as \ooo. In place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++)
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	*to = '\0';
}

int mounts_open(struct mounts *m)
{
	m->f = fopen("/proc/self/mounts", "re");
	return m->f ? 0 : -errno;
}

int mounts_next(struct mounts *m)
{
	char type[64];

	while (fscanf(m->f, "%4095s %4095s %63s %*[^\n]", m->store, m->point, type) == 3) {
		if (strcmp(type, "fuse.ckptfs") != 0)
			continue;
		unescape(m->store);
		unescape(m->point);
		return 1;
	}
	return 0;
}

void mounts_close(struct mounts *m)
{
	if (m->f)
		fclose(m->f);
	m->f = NULL;
}
