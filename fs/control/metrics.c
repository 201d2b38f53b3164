/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/control/metrics.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json/json_flat.h"
#include "base/log.h"
#include "base/util.h"
#include "client/figures.h"
#include "fs/control/control.h"
#include "fs/control/metrics_address.h"

#define BACKLOG 16
#define CONNECTIONS_MAX 16u /* a scraper needs one */
#define TIMEOUT_S 10u
#define CONNECTION_MEMORY ((size_t)16384) /* for the request: replies have memory of their own */

struct metrics {
	int fd; /* listening; -1 once the server owns it */
	struct fs *fs;
	struct MHD_Daemon *server;
};

static bool is_loopback(const struct sockaddr *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	if (sa->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return sa->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static int listen_at(const char *address, const struct addrinfo *ai, int *ret)
{
	_cleanup_(closep) int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
	int yes = 1;

	if (fd < 0)
		return log_errno(-errno, "option metrics=%s", address);
	/* Else a mount soon after an unmount finds the port in use by connections that are already closed. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
		if (errno == EADDRINUSE)
			return log_errno(-errno, "option metrics=%s: another program listens there", address);
		if (errno == EADDRNOTAVAIL)
			return log_errno(-errno, "option metrics=%s: not an address of this machine", address);
		return log_errno(-errno, "option metrics=%s: cannot listen there", address);
	}
	if (!is_loopback(ai->ai_addr))
		log_notice("metrics: readable by every process that can reach %s", address);
	*ret = fd;
	fd = -1;
	return 0;
}

int metrics_listen(const char *address, struct metrics **ret)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE }, *found;
	struct metrics_address a;
	struct metrics *m;
	int r, fd = -1;

	r = metrics_address_parse(address, &a);
	if (r < 0)
		return r; /* mount_options.c has already refused it */
	r = getaddrinfo(a.host, a.port, &hints, &found);
	if (r != 0) {
		log_error("option metrics=%s: %s: %s", address, a.host, gai_strerror(r));
		return -EINVAL;
	}
	r = listen_at(address, found, &fd);
	freeaddrinfo(found);
	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m) {
		close(fd);
		return -ENOMEM;
	}
	m->fd = fd;
	*ret = m;
	return 0;
}

/* Allocated; the response frees it. */
static int text_of(struct fs *fs, char **ret, size_t *ret_len)
{
	_cleanup_(buf_release) struct buf json = BUF_EMPTY;
	_cleanup_(json_flat_release) struct json_flat figures = { 0 };
	char *text = NULL;
	size_t len = 0;
	FILE *to;
	int r;

	r = control_figures(fs, &json);
	if (r == 0)
		r = json_flat_parse((const char *)json.data, json.len, &figures);
	if (r < 0)
		return r;
	to = open_memstream(&text, &len);
	if (!to)
		return -ENOMEM;
	figures_print_metrics(to, &figures, 1);
	if (fclose(to) != 0) {
		free(text);
		return -ENOMEM;
	}
	*ret = text;
	*ret_len = len;
	return 0;
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, struct MHD_Response *response, const char *type)
{
	enum MHD_Result r;

	if (!response)
		return MHD_NO; /* closes the connection */
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	r = MHD_queue_response(c, status, response);
	MHD_destroy_response(response); /* our reference */
	return r;
}

static enum MHD_Result reply_text(struct MHD_Connection *c, unsigned status, const char *text)
{
	return reply(c, status,
		     MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT),
		     "text/plain; charset=utf-8");
}

static enum MHD_Result serve_metrics(void *userdata, struct MHD_Connection *c, const char *url, const char *method,
				     _unused_ const char *version, _unused_ const char *upload,
				     _unused_ size_t *upload_len, void **state)
{
	static int headers_seen;
	struct metrics *m = userdata;
	char *text;
	size_t len;

	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return reply_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET /metrics is served here.\n");
	if (!*state) { /* the first call comes before the request is complete */
		*state = &headers_seen;
		return MHD_YES;
	}
	if (strcmp(url, "/metrics") != 0)
		return reply_text(c, MHD_HTTP_NOT_FOUND, "The figures of this ckptfs mount are at /metrics.\n");
	if (text_of(m->fs, &text, &len) < 0)
		return reply_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "Out of memory.\n");
	return reply(c, MHD_HTTP_OK, MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE),
		     "text/plain; version=0.0.4; charset=utf-8");
}

int metrics_start(struct metrics *m, struct fs *fs)
{
	m->fs = fs;
	m->server = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL, serve_metrics, m,
				     MHD_OPTION_LISTEN_SOCKET, m->fd, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
				     MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				     CONNECTION_MEMORY, MHD_OPTION_END);
	if (!m->server) {
		log_error("metrics: the server cannot be started");
		return -ENOMEM;
	}
	m->fd = -1;
	return 0;
}

void metrics_stop(struct metrics *m)
{
	if (!m)
		return;
	if (m->server)
		MHD_stop_daemon(m->server); /* closes the listening socket */
	closep(&m->fd);
	free(m);
}
