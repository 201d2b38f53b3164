/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/control/metrics_address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOPBACK "127.0.0.1"
#define PORT_MAX 65535

static int take_port(const char *s, struct metrics_address *ret)
{
	size_t len = strlen(s);
	unsigned long v;

	if (len == 0 || len >= sizeof(ret->port) || strspn(s, "0123456789") != len)
		return -EINVAL;
	v = strtoul(s, NULL, 10);
	if (v == 0 || v > PORT_MAX)
		return -EINVAL;
	snprintf(ret->port, sizeof(ret->port), "%lu", v);
	return 0;
}

static int take_host(const char *s, size_t len, struct metrics_address *ret)
{
	if (len == 0 || len >= sizeof(ret->host))
		return -EINVAL;
	memcpy(ret->host, s, len);
	ret->host[len] = '\0';
	return 0;
}

int metrics_address_parse(const char *s, struct metrics_address *ret)
{
	struct metrics_address a = { .host = LOOPBACK };
	const char *colon = strrchr(s, ':'), *host = s, *end = colon;
	int r = 0;

	if (colon && s[0] == '[') {
		host = s + 1;
		end = colon - 1;
		if (end <= host || *end != ']')
			return -EINVAL;
	} else if (colon && memchr(s, ':', (size_t)(colon - s))) {
		return -EINVAL; /* "::1:9100" is ambiguous */
	}
	if (colon)
		r = take_host(host, (size_t)(end - host), &a);
	if (r == 0)
		r = take_port(colon ? colon + 1 : s, &a);
	if (r < 0)
		return r;
	*ret = a;
	return 0;
}
