/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Prints the list of ioctl_ckptfs(2), made from the table that the daemon dispatches by. */
#include <stdio.h>
#include <string.h>

#include "fs/ops/ops_ioctl.h"

static void print_entry(const struct ioctl_entry *e)
{
	printf(".It Dv %s Pq Vt %s\n%s\n", e->name, e->type, e->about);
	if (e->access != IOCTL_NO_ACCESS)
		printf("On a file open for %s.\n", e->access == IOCTL_READ ? "reading" : "writing");
	else if (e->on != IOCTL_ON_ANY)
		printf("On a %s.\n", e->on == IOCTL_ON_FILE ? "file" : "directory");
	if (e->operator_only == IOCTL_ALL_COMMANDS)
		printf("Only for root and the mounting user.\n");
	else if (e->operator_only != 0)
		printf("Some commands are only for root and the mounting user.\n");
	if (e->page)
		printf("See\n.Xr %s .\n", e->page);
}

int main(void)
{
	for (size_t i = 0; i < ioctl_table_nr; i++)
		print_entry(&ioctl_table[i]);
	return 0;
}
