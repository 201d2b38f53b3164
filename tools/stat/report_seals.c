/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/report_seals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/json/json_flat.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/seal/verify.h"
#include "tools/stat/html.h"
#include "tools/stat/report.h"
#include "tools/stat/report_parts.h"
#include "tools/stat/stat_exclusive.h"

#define NS_PER_S 1000000000

void report_seals_release(struct report_seals *s)
{
	for (size_t i = 0; i < s->nr; i++)
		free(s->v[i].why);
	free(TAKE(s->v));
	seals_release(&s->all);
	*s = (struct report_seals){ 0 };
}

static int verify_one(const char *path, struct report_seal *ret)
{
	struct verify_result result = { 0 };
	int r = verify_seal(path, false, NULL, &result);

	if (r == -ECANCELED || interrupted())
		return -EINTR;
	ret->state = r == 1 ? SEAL_AS_SEALED : r == 0 ? SEAL_DAMAGED : SEAL_UNKNOWN;
	if (r != 1)
		ret->why = strdup(result.why[0] || r == 0 ? result.why : strerror(-r));
	return 0;
}

static int examine_seal(const struct seals *all, struct report_seal *ret)
{
	_cleanup_(freep) char *path = seals_path(all, ret->seal);
	struct ckptfs_exclusive x;
	int r = path ? verify_one(path, ret) : -ENOMEM;

	if (r < 0)
		return r;
	r = stat_exclusive(&path, 1, &x); /* the page can do without it */
	if (r == -EINTR)
		return r;
	ret->has_space = r == 0;
	if (ret->has_space) {
		ret->shared = x.bytes - MIN(x.bytes, x.exclusive_bytes);
		ret->exclusive = x.exclusive_bytes;
		ret->stored = x.exclusive_stored;
	}
	return 0;
}

int report_seals_get(const char *mountpoint, struct report_seals *ret)
{
	_cleanup_(report_seals_release) struct report_seals s = { 0 };
	struct progress progress;
	size_t nr;
	int r = seals_get("ckptfs-stat", mountpoint, &s.all);

	if (r < 0)
		return r;
	nr = MIN(s.all.nr, (size_t)REPORT_SEALS_MAX);
	s.v = calloc(nr + 1, sizeof(*s.v));
	if (!s.v)
		return -ENOMEM;
	progress_init(&progress);
	while (r == 0 && s.nr < nr) {
		progress_show(&progress, "Verifying:", s.nr, nr, false);
		s.v[s.nr].seal = &s.all.v[s.all.nr - 1 - s.nr];
		r = examine_seal(&s.all, &s.v[s.nr++]);
	}
	progress_clear(&progress);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct report_seals){ 0 };
	return 0;
}

/* --- the section --- */

static void put_state(FILE *to, const struct report_seal *s)
{
	fputs("<td>", to);
	if (s->state == SEAL_AS_SEALED)
		parts_badge(to, HEALTHY, "as sealed");
	else
		parts_badge(to, s->state == SEAL_DAMAGED ? HEALTH_CRITICAL : HEALTH_WARNING,
			    s->state == SEAL_DAMAGED ? "damaged" : "not known");
	if (s->why && s->why[0]) {
		fputs("<p class=\"soft\">", to);
		html_name(to, s->why);
		fputs("</p>", to);
	}
	fputs("</td>", to);
}

static void put_known(FILE *to, bool is_known, uint64_t bytes)
{
	if (is_known)
		parts_size_cell(to, bytes);
	else
		fputs("<td class=\"n\">&ndash;</td>", to);
}

static void put_seal(FILE *to, const struct report_seal *s)
{
	bool is_here = !(s->seal->facts & CKPTFS_SEAL_REMOTE);

	fputs("<tr><th scope=\"row\" class=\"mono\">", to);
	parts_path(to, s->seal->path);
	fputs("</th><td class=\"when\">", to);
	parts_time(to, (time_t)(s->seal->sealed_ns / NS_PER_S));
	fputs("</td>", to);
	put_known(to, is_here, s->seal->bytes);
	put_known(to, s->seal->facts & CKPTFS_SEAL_HAS_ROOT, s->seal->new_bytes);
	put_known(to, s->has_space, s->shared);
	put_state(to, s);
	fputs("</tr>\n", to);
}

void parts_seals(FILE *to, const struct report *r)
{
	const struct report_seals *s = r->seals;

	parts_open(to, "sealed", "Sealed checkpoints",
		   "New: stored bytes that nothing else referred to when it was sealed. Shared: bytes that other files have, "
		   "too, each chunk counted once. The state compares names, attributes and the fingerprints of all content "
		   "with those that were sealed; <code>ckptfs verify</code> and scrubs read the content as well.");
	if (s->nr == 0) {
		fputs("<p>No directory is sealed.</p>\n</section>\n", to);
		return;
	}
	fputs("<div class=\"wide\"><table><thead><tr><th>Checkpoint</th><th>Sealed</th><th class=\"n\">Size</th>"
	      "<th class=\"n\">New</th><th class=\"n\">Shared</th><th>State</th></tr></thead><tbody>\n",
	      to);
	for (size_t i = 0; i < s->nr; i++)
		put_seal(to, &s->v[i]);
	fputs("</tbody></table></div>\n", to);
	if (s->all.nr > s->nr)
		fprintf(to, "<p class=\"soft\">And %zu older, which were not examined.</p>\n", s->all.nr - s->nr);
	fputs("</section>\n", to);
}
