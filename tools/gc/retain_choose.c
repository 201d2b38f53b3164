/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/gc/retain.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The last number in a name. false: there is none, or it does not fit. */
static bool number_of(const char *name, uint64_t *ret)
{
	size_t end = strlen(name), start;

	while (end > 0 && !isdigit((unsigned char)name[end - 1]))
		end--;
	start = end;
	while (start > 0 && isdigit((unsigned char)name[start - 1]))
		start--;
	errno = 0;
	*ret = strtoull(name + start, NULL, 10);
	return start < end && errno == 0;
}

static bool is_every(const struct keep_policy *p, const char *name)
{
	uint64_t n;

	return p->every > 0 && (!number_of(name, &n) || n % p->every == 0);
}

static bool is_within(const struct keep_policy *p, int64_t now_ns, int64_t sealed_ns)
{
	return p->within_ns > 0 && (sealed_ns > now_ns || (uint64_t)(now_ns - sealed_ns) < p->within_ns);
}

void retain_choose(const struct keep_policy *p, int64_t now_ns, struct retain_seal *v, size_t nr, size_t proven)
{
	for (size_t i = 0; i < nr; i++) {
		struct retain_seal *e = &v[i];

		if (proven == nr)
			e->why = "none is valid";
		else if (i == proven)
			e->why = "newest valid";
		else if (nr - i <= p->last)
			e->why = "last";
		else if (is_every(p, e->name))
			e->why = "every";
		else if (is_within(p, now_ns, e->seal.sealed_ns))
			e->why = "within";
		else if (p->tagged && e->is_tagged)
			e->why = "tagged";
		else
			e->why = NULL;
	}
}
