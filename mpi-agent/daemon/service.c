/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/service.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/daemon/service_internal.h"

#define ROUND_NS (UINT64_C(20) * 1000000000)
#define BEGIN_NS (UINT64_C(2) * 1000000000)
#define FETCH_NS (UINT64_C(20) * 1000000000)
#define ANNOUNCE_NS UINT64_C(250000000)
#define READ_STEP ((size_t)1 << 18) /* bytes received at once */
#define SPARE_MIN ((size_t)64 << 10) /* the allocator reuses shorter ones itself */
#define SPARE_MAX ((size_t)4 << 20) /* longer ones are rare */

/* --- outgoing messages --- */

void service_wake(struct service *s)
{
	uint64_t one = 1;
	ssize_t n _unused_ = write(s->wake_fd, &one, sizeof(one));
}

bool service_wait_until(struct service *s, struct cond *c, uint64_t until_ns)
{
	uint64_t now = monotonic_ns();

	assert(mutex_held(&s->lock));
	return now < until_ns && (cond_wait_for(c, &s->lock, until_ns - now) || monotonic_ns() < until_ns);
}

void service_take_spare(struct service *s, struct buf *ret)
{
	assert(mutex_held(&s->lock));
	for (unsigned i = 0; i < SERVICE_SPARES; i++)
		if (s->spares[i].data) {
			buf_move(ret, &s->spares[i]);
			return;
		}
	*ret = BUF_EMPTY;
}

void service_spare(struct service *s, struct buf *b)
{
	assert(mutex_held(&s->lock));
	buf_clear(b);
	for (unsigned i = 0; i < SERVICE_SPARES && b->size >= SPARE_MIN && b->size <= SPARE_MAX; i++)
		if (!s->spares[i].data)
			buf_move(&s->spares[i], b);
	buf_release(b);
}

int service_send(struct service *s, uint64_t agent, struct buf *message)
{
	return service_send_from(s, agent, message, 0);
}

int service_put(struct service *s, uint64_t agent, struct buf *message, size_t from)
{
	struct service_out *o;

	assert(mutex_held(&s->lock));
	if (s->agent == 0 || s->agent != agent)
		return -ENOTCONN;
	o = buf_error(message) == 0 ? calloc(1, sizeof(*o)) : NULL;
	if (!o)
		return -ENOMEM;
	buf_move(&o->b, message);
	o->from = from;
	*s->out_end = o;
	s->out_end = &o->next;
	s->out_bytes += o->b.len;
	return 0;
}

int service_send_from(struct service *s, uint64_t agent, struct buf *message, size_t from)
{
	int r = service_put(s, agent, message, from);

	if (r == 0)
		service_wake(s);
	return r;
}

int service_send_plain(struct service *s, enum link_type type, uint64_t number)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	link_encode_plain(type, number, &b);
	return service_send(s, s->agent, &b);
}

static void out_remove(struct service *s) REQUIRES(s->lock)
{
	struct service_out *o = s->out;

	assert(mutex_held(&s->lock));
	s->out = o->next;
	if (!s->out)
		s->out_end = &s->out;
	if (s->out_bytes > SERVICE_OUT_MAX && s->out_bytes - o->b.len <= SERVICE_OUT_MAX) { /* there is room again */
		service_queue_wake(&s->gets);
		service_queue_wake(&s->rebuilds);
	}
	s->out_bytes -= o->b.len;
	arena_put(o->passes);
	service_spare(s, &o->b);
	free(o);
}

/* Send as much of the first message as possible. 0, -EAGAIN, -ENOTCONN */
static int send_first(struct service *s) REQUIRES(s->lock)
{
	struct service_out *o = s->out;
	size_t left = o->b.len - o->from - s->sent;
	int fd = s->fd, passes = o->passes && s->sent == 0 ? arena_fd(o->passes) : -1, r;
	ssize_t n;

	mutex_unlock(&s->lock);
	n = TEMP_FAILURE_RETRY(link_send(fd, o->b.data + o->from + s->sent, left, passes));
	r = n >= 0 ? 0 : errno == EAGAIN ? -EAGAIN : -ENOTCONN;
	mutex_lock(&s->lock);
	if (r < 0)
		return r;
	s->sent += (size_t)n;
	if ((size_t)n == left) {
		s->sent = 0;
		out_remove(s);
	}
	return 0;
}

/* If no other thread is sending, sends all queued messages, including those added meanwhile. 0; -EAGAIN: some are left;
 * -ENOTCONN. */
static int send_out(struct service *s)
{
	int r = 0;

	mutex_lock(&s->lock);
	if (!s->is_sending && s->fd >= 0) {
		s->is_sending = true;
		while (r == 0 && s->out)
			r = send_first(s);
		s->is_sending = false;
		cond_broadcast(&s->not_sending);
	}
	mutex_unlock(&s->lock);
	return r;
}

void service_flush(struct service *s)
{
	if (send_out(s) < 0)
		service_wake(s); /* the thread that owns the socket sends the rest and handles errors */
}

/* --- the agent --- */

/* The connected agent, as seen by the thread that owns the socket. */
struct connection {
	struct service *s;
	int fd; /* -1: none */
	uint64_t agent;
	uint64_t since_ns;
	bool is_welcome; /* HELLO was received */
	bool has_nodes; /* NODES was received */
	uint8_t head[sizeof(struct link_header_wire)];
	size_t head_len; /* bytes of it received */
	struct link_header header;
	struct buf body;
	int passed; /* a received descriptor; -1: none */
	int leaving; /* socket of the agent refused last; -1: none */
};

void service_hang_up(struct service *s, uint64_t agent, const char *what)
{
	log_warning("agent: malformed message (%s); closing the connection", what);
	mutex_lock(&s->lock);
	if (s->agent == agent) {
		s->hang_up = true;
		service_wake(s);
	}
	mutex_unlock(&s->lock);
}

static void disconnect(struct connection *c)
{
	struct service *s = c->s;
	bool had_nodes = c->has_nodes;

	if (c->fd < 0)
		return;
	mutex_lock(&s->lock);
	s->fd = -1;
	while (s->is_sending)
		cond_wait(&s->not_sending, &s->lock);
	mutex_unlock(&s->lock);
	close(c->fd);
	closep(&c->passed);
	buf_release(&c->body);
	mutex_lock(&s->lock);
	s->agent = 0;
	s->hang_up = s->is_silent = s->is_wanted = false;
	free(TAKE(s->nodes));
	free(TAKE(s->hosts));
	s->nr_nodes = 0;
	service_end_round(s, -ENOTCONN);
	while (s->out)
		out_remove(s);
	s->sent = 0;
	buf_clear(&s->taken);
	service_fail_requests(s);
	service_drop_untaken(s);
	arena_put(TAKE(s->shared.own));
	arena_put(TAKE(s->shared.theirs));
	service_queue_clear(&s->gets);
	service_queue_clear(&s->rebuilds);
	service_queue_clear(&s->keeps);
	service_drop_questions(s);
	service_leave_collection(s);
	cond_broadcast(&s->changed);
	mutex_unlock(&s->lock);
	*c = (struct connection){ .s = s, .fd = -1, .passed = -1, .leaving = c->leaving };
	if (had_nodes && s->store.peers_changed)
		s->store.peers_changed(s->store.userdata);
}

/* Error to refuse a connection with; 0: accepted. */
static int may_connect(struct connection *c, int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return log_errno(-errno, "agent: cannot get peer credentials");
	if (peer.uid != geteuid() && peer.uid != 0) {
		log_warning("agent: process %d of user %u refused, this is a store of user %u", (int)peer.pid, peer.uid,
			    geteuid());
		return -EACCES;
	}
	if (c->fd >= 0) {
		log_warning("agent: process %d refused, another agent is connected", (int)peer.pid);
		return -EBUSY;
	}
	log_info("agent: process %d connected", (int)peer.pid);
	return 0;
}

/*
 * Refuse a new connection. The short message fits into the empty socket buffer. The agent may be about to send HELLO
 * and would get an error instead if this end were closed: it stays open until the next connection.
 */
static void reject(struct connection *c, int fd, int why)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	link_encode_plain(LINK_REFUSED, (uint64_t)-why, &b);
	if (buf_error(&b) == 0 && send(fd, b.data, b.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("agent: cannot send the reason of the refusal");
	shutdown(fd, SHUT_WR);
	closep(&c->leaving);
	c->leaving = fd;
}

static void take_caller(struct connection *c)
{
	struct service *s = c->s;
	int fd = accept4(s->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int r;

	if (fd < 0)
		return;
	r = may_connect(c, fd);
	if (r < 0) {
		reject(c, fd, r);
		return;
	}
	mutex_lock(&s->lock);
	s->agent = ++s->nr_agents;
	s->fd = fd;
	*c = (struct connection){ .s = s, .fd = fd, .agent = s->agent, .since_ns = monotonic_ns(), .passed = -1, .leaving = c->leaving };
	mutex_unlock(&s->lock);
}

/* --- messages from the agent --- */

/* Both ends share memory, or neither does; then all data goes through the socket. */
static int share_memory(struct connection *c, struct arenas *ret)
{
	int fd = c->passed, r;

	c->passed = -1;
	*ret = (struct arenas){ 0 };
	if (fd < 0)
		return 0;
	r = arena_open(fd, &ret->theirs);
	if (r == 0 && arena_new(ARENA_LEN, &ret->own) < 0)
		arena_put(TAKE(ret->theirs));
	return r;
}

/* Sent before any message that refers to shared memory. */
static int send_welcome(struct connection *c, struct buf *b)
{
	struct service *s = c->s;
	struct arenas shared;
	int r = share_memory(c, &shared);

	if (r < 0)
		return r;
	mutex_lock(&s->lock);
	s->shared = shared;
	r = service_send(s, c->agent, b);
	if (r == 0 && shared.own)
		s->out->passes = arena_get(shared.own); /* the first message */
	mutex_unlock(&s->lock);
	return r;
}

static int take_hello(struct connection *c)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct service *s = c->s;
	int r = link_decode_hello(c->body.data, c->body.len);

	if (r == -EOPNOTSUPP)
		return log_errno(r, "agent: protocol version differs from this daemon's");
	if (r < 0)
		return r;
	link_encode_welcome(&s->welcome, &b);
	r = send_welcome(c, &b);
	c->is_welcome = true;
	return r;
}

static int nodes_of(const struct link_node *in, uint32_t nr, struct cluster_node **ret, uint32_t **ret_hosts)
{
	_cleanup_(freep) struct cluster_node *nodes = calloc(nr, sizeof(*nodes));
	_cleanup_(freep) uint32_t *hosts = calloc(nr, sizeof(*hosts));

	static_assert(sizeof(nodes->id) == sizeof(in->store_id) && sizeof(nodes->name) == sizeof(in->name),
		      "as they come");
	if (!nodes || !hosts)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		memcpy(nodes[i].id, in[i].store_id, sizeof(nodes[i].id));
		memcpy(nodes[i].name, in[i].name, sizeof(nodes[i].name));
		hosts[i] = in[i].host;
	}
	*ret = TAKE(nodes);
	*ret_hosts = TAKE(hosts);
	return 0;
}

static int take_nodes(struct connection *c)
{
	_cleanup_(freep) struct link_node *in = NULL;
	struct cluster_node *nodes;
	struct service *s = c->s;
	uint32_t nr, self, *hosts;
	int r;

	r = link_decode_nodes(c->body.data, c->body.len, &in, &nr, &self);
	if (r < 0)
		return r;
	if (memcmp(in[self].store_id, s->welcome.store_id, sizeof(s->welcome.store_id)) != 0)
		return log_errno(-EBADMSG, "agent: expects the store of node %s", in[self].name);
	r = nodes_of(in, nr, &nodes, &hosts);
	if (r < 0)
		return r;
	mutex_lock(&s->lock);
	free(s->nodes);
	free(s->hosts);
	s->nodes = nodes;
	s->hosts = hosts;
	s->nr_nodes = nr;
	s->self = self;
	service_end_round(s, -ECANCELED);
	s->is_silent = false;
	cond_broadcast(&s->changed);
	mutex_unlock(&s->lock);
	c->has_nodes = true;
	log_info("agent: %" PRIu32 " nodes take part, this is number %" PRIu32, nr, self);
	if (s->store.peers_changed)
		s->store.peers_changed(s->store.userdata);
	return 0;
}

static int take_message(struct connection *c)
{
	struct service *s = c->s;

	if (!c->is_welcome)
		return c->header.type == LINK_HELLO ? take_hello(c) : -EBADMSG;
	if (!c->has_nodes && c->header.type != LINK_NODES)
		return -EBADMSG;
	switch (c->header.type) {
	case LINK_NODES:
		return take_nodes(c);
	case LINK_BEGIN:
		service_begin(s, c->header.number);
		return c->body.len == 0 ? 0 : -EBADMSG;
	case LINK_DECISION:
	case LINK_SETTLED:
		service_answer(s, c->header.type, c->header.number, &c->body);
		return 0;
	case LINK_CHUNKS:
	case LINK_PLACES:
	case LINK_KEPT:
	case LINK_REPLICATED:
	case LINK_DROPPED:
	case LINK_ANSWER:
		service_answered(s, c->header.type, c->header.number, &c->body);
		return 0;
	case LINK_PUT:
	case LINK_REPLICATE:
	case LINK_DROP:
		service_keep(s, c->header.type, c->header.number, &c->body);
		return 0;
	case LINK_SHARED:
		if (s->store.shared)
			s->store.shared(s->store.userdata);
		return 0;
	case LINK_QUESTION:
		return service_question(s, c->header.number, &c->body);
	case LINK_GET:
	case LINK_PIN:
		service_get(s, c->header.type, c->header.number, &c->body);
		return 0;
	case LINK_TAKEN:
		return service_taken(s, c->header.number);
	case LINK_STEP:
		return service_step(s, c->header.number, &c->body);
	case LINK_COLLECTED:
		return service_collected(s, c->body.data, c->body.len);
	default:
		return -EBADMSG;
	}
}

/* --- input and output --- */

/* Receive up to `len` bytes. Their number; -EAGAIN: none now; -ENOTCONN: disconnected. */
static ssize_t receive(struct connection *c, void *p, size_t len)
{
	ssize_t n = TEMP_FAILURE_RETRY(link_recv(c->fd, p, len, &c->passed));

	return n > 0 ? n : n == 0 ? -ENOTCONN : -errno;
}

static int receive_head(struct connection *c)
{
	ssize_t n = receive(c, c->head + c->head_len, sizeof(c->head) - c->head_len);

	if (n < 0)
		return (int)n;
	c->head_len += (size_t)n;
	if (c->head_len < sizeof(c->head))
		return 0;
	return link_decode_header(c->head, sizeof(c->head), &c->header);
}

static int receive_body(struct connection *c)
{
	size_t step = MIN((size_t)c->header.len - c->body.len, READ_STEP);
	ssize_t n;
	int r;

	if (!c->body.data && c->header.len >= SPARE_MIN) {
		mutex_lock(&c->s->lock);
		service_take_spare(c->s, &c->body);
		mutex_unlock(&c->s->lock);
	}
	r = buf_reserve(&c->body, step);
	if (r < 0)
		return r;
	n = receive(c, c->body.data + c->body.len, step);
	if (n < 0)
		return (int)n;
	c->body.len += (size_t)n;
	return 0;
}

/* Receive what is available, up to a limit: other events must be handled too. */
static int receive_some(struct connection *c)
{
	int r = 0;

	for (int i = 0; i < 64 && r == 0; i++) {
		r = c->head_len < sizeof(c->head) ? receive_head(c) : receive_body(c);
		if (r < 0 || c->head_len < sizeof(c->head) || c->body.len < c->header.len)
			continue;
		r = take_message(c);
		buf_release(&c->body); /* empty if it was taken */
		c->head_len = 0;
	}
	return r == -EAGAIN ? 0 : r;
}

static int attend(struct connection *c, int events)
{
	int r = 0;

	if (events & (POLLIN | POLLHUP | POLLERR))
		r = receive_some(c);
	if (r == 0)
		r = send_out(c->s);
	if (r == -EAGAIN)
		r = 0;
	if (r == 0 && !c->is_welcome && monotonic_ns() - c->since_ns >= c->s->limits.round_ns)
		r = log_errno(-ETIMEDOUT, "agent: no handshake");
	if (r == -EBADMSG)
		log_warning("agent: malformed message (type %d, %" PRIu32 " bytes); closing the connection",
			    (int)c->header.type, c->header.len);
	return r;
}

/* Time to wait in poll(); -1: unlimited. */
static int poll_ms(struct connection *c, uint64_t until_ns)
{
	uint64_t now = monotonic_ns();

	if (c->fd >= 0 && !c->is_welcome)
		until_ns = MIN(until_ns, c->since_ns + c->s->limits.round_ns);
	if (until_ns == UINT64_MAX)
		return -1;
	return until_ns <= now ? 0 : (int)MIN((until_ns - now) / 1000000 + 1, UINT64_C(1000000));
}

/* Wait for an event and handle it. false: stopping. */
static bool turn(struct connection *c)
{
	struct service *s = c->s;
	struct pollfd fds[] = {
		{ .fd = s->wake_fd, .events = POLLIN },
		{ .fd = s->listener.fd, .events = POLLIN },
		{ .fd = c->fd, .events = POLLIN },
	};
	bool stopping, hang_up;
	uint64_t until_ns, look_ns, count;
	ssize_t n _unused_;

	look_ns = service_await_writers(s, monotonic_ns());
	mutex_lock(&s->lock);
	until_ns = MIN(service_begin_without_round(s, monotonic_ns()), look_ns);
	until_ns = MIN(service_announce_due(s, monotonic_ns()), until_ns);
	until_ns = MIN(service_report_taken(s, monotonic_ns()), until_ns);
	stopping = s->stopping;
	hang_up = s->hang_up;
	fds[2].events |= s->out ? POLLOUT : 0;
	mutex_unlock(&s->lock);
	if (stopping)
		return false;
	if (hang_up)
		disconnect(c);
	fds[2].fd = c->fd;
	if (poll(fds, ARRAY_SIZE(fds), poll_ms(c, until_ns)) < 0)
		return true;
	if (fds[0].revents)
		n = read(s->wake_fd, &count, sizeof(count));
	if (c->fd >= 0 && attend(c, fds[2].revents) < 0) {
		log_info("agent: disconnected");
		disconnect(c);
	}
	if (fds[1].revents)
		take_caller(c);
	return true;
}

static void *io_thread(void *userdata)
{
	struct connection c = { .s = userdata, .fd = -1, .passed = -1, .leaving = -1 };

	while (turn(&c))
		;
	disconnect(&c);
	closep(&c.leaving);
	return NULL;
}

/* --- construction --- */

int service_new(const struct service_limits *limits, struct service **ret)
{
	struct service *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	if (limits)
		s->limits = *limits;
	s->limits.round_ns = s->limits.round_ns ?: ROUND_NS;
	s->limits.begin_ns = s->limits.begin_ns ?: BEGIN_NS;
	s->limits.fetch_ns = s->limits.fetch_ns ?: FETCH_NS;
	s->limits.announce_ns = s->limits.announce_ns ?: ANNOUNCE_NS;
	s->calls = (struct cluster_calls){
		.userdata = s,
		.is_there = service_is_there,
		.decide = service_decide,
		.settle = service_settle,
		.fetch = service_fetch,
		.want = service_want,
		.stored = service_stored,
	};
	s->listener = LISTENER_NONE;
	s->out_end = &s->out;
	s->questions_end = &s->questions;
	mutex_init(&s->lock);
	cond_init(&s->changed);
	cond_init(&s->not_sending);
	s->fd = -1;
	cond_init(&s->gets.changed);
	cond_init(&s->rebuilds.changed);
	cond_init(&s->keeps.changed);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0) {
		int r = log_errno(-errno, "agent: eventfd");

		service_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

const struct cluster_calls *service_calls(struct service *s)
{
	return &s->calls;
}

/* Wake all waiting threads when stopping. */
static void wake_all(struct service *s) REQUIRES(s->lock)
{
	assert(mutex_held(&s->lock));
	service_wake(s);
	cond_broadcast(&s->changed);
	service_queue_wake(&s->gets);
	service_queue_wake(&s->rebuilds);
	service_queue_wake(&s->keeps);
	for (struct service_request *rq = s->requests; rq; rq = rq->next)
		cond_broadcast(&rq->done);
}

/* All or none. */
static int start_threads(struct service *s)
{
	const struct {
		pthread_t *thread;
		void *(*run)(void *);
	} threads[] = { { &s->io, io_thread },
			{ &s->server, service_server },
			{ &s->committer, service_committer },
			{ &s->collector, service_collector },
			{ &s->answerer, service_answerer },
			{ &s->receiver, service_receiver },
			{ &s->rebuilder, service_rebuilder } };
	size_t nr = 0;
	int r = 0;

	for (; nr < ARRAY_SIZE(threads) && r == 0; nr += r == 0)
		r = pthread_create(threads[nr].thread, NULL, threads[nr].run, s);
	if (r == 0)
		return 0;
	mutex_lock(&s->lock);
	s->stopping = true;
	wake_all(s);
	mutex_unlock(&s->lock);
	while (nr-- > 0)
		pthread_join(*threads[nr].thread, NULL);
	return -r;
}

int service_start(struct service *s, const char *path, const struct link_welcome *welcome,
		  const struct service_store *store)
{
	int r;

	assert(!s->is_started);
	s->welcome = *welcome;
	s->store = *store;
	r = listener_open(&s->listener, path);
	if (r < 0)
		return r;
	r = start_threads(s);
	if (r < 0) {
		listener_close(&s->listener);
		return log_errno(r, "agent: threads");
	}
	s->is_started = true;
	log_info("agent: awaited at %s", path);
	return 0;
}

void service_stop(struct service *s)
{
	if (!s || !s->is_started)
		return;
	mutex_lock(&s->lock);
	s->stopping = true;
	wake_all(s);
	mutex_unlock(&s->lock);
	pthread_join(s->io, NULL); /* first: then no agent is connected, and no thread waits for one */
	pthread_join(s->server, NULL);
	pthread_join(s->committer, NULL);
	pthread_join(s->collector, NULL);
	pthread_join(s->answerer, NULL);
	pthread_join(s->receiver, NULL);
	pthread_join(s->rebuilder, NULL);
	listener_close(&s->listener);
	s->is_started = false;
}

void service_free(struct service *s)
{
	if (!s)
		return;
	service_stop(s);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	for (unsigned i = 0; i < SERVICE_SPARES; i++)
		buf_release(&s->spares[i]);
	free(s->unannounced);
	buf_release(&s->taken);
	cond_release(&s->changed);
	cond_release(&s->not_sending);
	cond_release(&s->gets.changed);
	cond_release(&s->rebuilds.changed);
	cond_release(&s->keeps.changed);
	mutex_release(&s->lock);
	free(s);
}

void service_stats(struct service *s, struct service_stats *ret)
{
	mutex_lock(&s->lock);
	*ret = s->stats;
	ret->is_connected = s->agent != 0;
	ret->is_silent = s->is_silent;
	ret->nr_nodes = s->nr_nodes;
	mutex_unlock(&s->lock);
}
