/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/report_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "tools/stat/html.h"
#include "tools/stat/report.h"
#include "tools/stat/report_parts.h"
#include "tools/stat/stat_exclusive.h"

int report_files_get(const char *mountpoint, const struct walk *w, struct report_files *ret)
{
	for (size_t i = 0; i < w->nr_largest; i++) {
		_cleanup_(freep) char *path = parts_below(mountpoint, w->largest[i].name);
		struct ckptfs_exclusive x;
		int r = path ? stat_exclusive(&path, 1, &x) : -ENOMEM;

		if (r == -EINTR || r == -ENOMEM)
			return r;
		if (r == 0 && x.linked_files == 0) /* one with other names would remain: nothing is exclusive to this one */
			ret->v[i] = (struct report_share){ true, x.bytes, x.exclusive_bytes };
	}
	return 0;
}

void parts_files(FILE *to, const struct report *r)
{
	const struct walk *w = r->walk;

	parts_open(to, "files", "Largest files, and what they share",
		   "Of all files: the part of the bytes in files, without holes. Distinct: each chunk counted once. Shared: "
		   "the part of these that other files refer to, too.");
	if (w->nr_largest == 0) {
		fputs("<p>There are no files.</p>\n</section>\n", to);
		return;
	}
	fputs("<div class=\"wide\"><table><thead><tr><th>File</th><th></th><th class=\"n\">Size</th>"
	      "<th class=\"n\">Of all files</th><th class=\"n\">Distinct</th><th class=\"n\">Shared</th></tr></thead><tbody>\n",
	      to);
	for (size_t i = 0; i < w->nr_largest; i++) {
		const struct report_share *s = &r->files->v[i];

		fputs("<tr><th scope=\"row\" class=\"mono\">", to);
		html_name(to, w->largest[i].name);
		fputs("</th>", to);
		parts_bar_cell(to, w->largest[i].mapped, w->largest[0].mapped);
		parts_size_cell(to, w->largest[i].mapped);
		parts_percent_cell(to, w->largest[i].mapped, w->mapped);
		if (s->is_known) {
			parts_size_cell(to, s->distinct);
			parts_percent_cell(to, s->distinct - MIN(s->distinct, s->exclusive), s->distinct);
		} else {
			fputs("<td class=\"n\">&ndash;</td><td class=\"n\">&ndash;</td>", to);
		}
		fputs("</tr>\n", to);
	}
	fputs("</tbody></table></div>\n</section>\n", to);
}
