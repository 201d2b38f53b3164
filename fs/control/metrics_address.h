/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Parses the value of `metrics=`: PORT on the loopback interface, HOST:PORT, or [IPV6]:PORT. Pure. */
#pragma once

struct metrics_address {
	char host[256];
	char port[6]; /* 1 to 65535 */
};

int metrics_address_parse(const char *s, struct metrics_address *ret); /* 0 or -EINVAL */
