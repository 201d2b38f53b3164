/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/pickle.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"

#define NODES_MAX 2000000u
#define STACK_MAX 200000u
#define MEMO_MAX 1000000u

struct machine {
	const uint8_t *p, *end;
	struct pickle *to;
	uint32_t room;
	uint32_t *stack, nr_stack;
	uint32_t *memo, room_memo;
};

const struct pickle_node *pickle_child(const struct pickle *p, const struct pickle_node *of, unsigned n)
{
	uint32_t at = of->first;

	while (at > 0 && n-- > 0)
		at = p->node[at].next;
	return at > 0 ? &p->node[at] : NULL;
}

void pickle_release(struct pickle *p)
{
	free(p->node);
	*p = (struct pickle){ 0 };
}

/* Push a new node on the stack. */
static int push(struct machine *m, struct pickle_node node)
{
	if (m->to->nr == NODES_MAX || m->nr_stack == STACK_MAX)
		return -E2BIG;
	if (m->to->nr == m->room) {
		uint32_t room = MAX(2 * m->room, 256u);
		struct pickle_node *more = reallocarray(m->to->node, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		m->to->node = more;
		m->room = room;
	}
	m->to->node[m->to->nr] = node;
	m->stack[m->nr_stack++] = m->to->nr++;
	return 0;
}

static int push_kind(struct machine *m, enum pickle_kind kind)
{
	return push(m, (struct pickle_node){ .kind = kind });
}

static int push_int(struct machine *m, int64_t number)
{
	return push(m, (struct pickle_node){ .kind = PICKLE_INT, .number = number });
}

static uint64_t number(const uint8_t *p, unsigned bytes)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < bytes; i++)
		n |= (uint64_t)p[i] << 8 * i;
	return n;
}

/* Read a number of so many bytes. */
static int take_number(struct machine *m, unsigned bytes, uint64_t *ret)
{
	if ((size_t)(m->end - m->p) < bytes)
		return -EBADMSG;
	*ret = number(m->p, bytes);
	m->p += bytes;
	return 0;
}

/* Push a text that is preceded by its length in so many bytes. */
static int push_text(struct machine *m, unsigned bytes, enum pickle_kind kind)
{
	uint64_t len;

	if (take_number(m, bytes, &len) < 0 || len > (uint64_t)(m->end - m->p))
		return -EBADMSG;
	m->p += len;
	return push(m, (struct pickle_node){ .kind = kind, .text = (const char *)m->p - len, .len = (size_t)len });
}

/* Two lines: module and name. They become one text with a newline in between. */
static int push_global(struct machine *m)
{
	const uint8_t *from = m->p, *nl;

	for (int i = 0; i < 2; i++) {
		nl = memchr(m->p, '\n', (size_t)(m->end - m->p));
		if (!nl)
			return -EBADMSG;
		m->p = nl + 1;
	}
	return push(m, (struct pickle_node){
			       .kind = PICKLE_GLOBAL, .text = (const char *)from, .len = (size_t)(m->p - from) - 1 });
}

static struct pickle_node *top(struct machine *m)
{
	return m->nr_stack > 0 ? &m->to->node[m->stack[m->nr_stack - 1]] : NULL;
}

/* A node has one parent: nodes from the memo are copied, with the children they have so far. */
static void append_child(struct machine *m, uint32_t parent, uint32_t child)
{
	struct pickle_node *p = &m->to->node[parent];

	if (p->last > 0)
		m->to->node[p->last].next = child;
	else
		p->first = child;
	p->last = child;
}

/* Index on the stack behind the last mark; -1: there is none. */
static int64_t behind_mark(const struct machine *m)
{
	for (uint32_t i = m->nr_stack; i > 0; i--)
		if (m->to->node[m->stack[i - 1]].kind == PICKLE_MARK)
			return i;
	return -1;
}

/* Move all nodes from there on the stack to the children of `parent`. */
static void adopt(struct machine *m, uint32_t parent, uint32_t from)
{
	for (uint32_t i = from; i < m->nr_stack; i++)
		append_child(m, parent, m->stack[i]);
	m->nr_stack = from;
}

/* Push a new node with the last `nr` nodes of the stack as children, or with -1 all nodes behind a mark. */
static int push_children(struct machine *m, enum pickle_kind kind, int nr)
{
	int64_t from = nr < 0 ? behind_mark(m) : (int64_t)m->nr_stack - nr;
	int r;

	if (from < 0)
		return -EBADMSG;
	for (uint32_t i = (uint32_t)from; i < m->nr_stack; i++)
		if (m->to->node[m->stack[i]].kind == PICKLE_MARK)
			return -EBADMSG;
	r = push_kind(m, kind);
	if (r < 0)
		return r;
	m->nr_stack--; /* it is on top of its children */
	uint32_t parent = m->stack[m->nr_stack];

	adopt(m, parent, (uint32_t)from);
	m->nr_stack = (uint32_t)from - (nr < 0 ? 1 : 0);
	m->stack[m->nr_stack++] = parent;
	return 0;
}

/* Move the last `nr` nodes (-1: all behind a mark) into the node below them: a dictionary or list, else drop them. */
static int extend(struct machine *m, int nr, enum pickle_kind kind)
{
	int64_t from = nr < 0 ? behind_mark(m) : (int64_t)m->nr_stack - nr;
	int64_t below = from - (nr < 0 ? 2 : 1);
	uint32_t parent;

	if (from < 0 || below < 0)
		return -EBADMSG;
	for (uint32_t i = (uint32_t)below; i < m->nr_stack; i++)
		if (m->to->node[m->stack[i]].kind == PICKLE_MARK && i + 1 != from)
			return -EBADMSG;
	if (kind == PICKLE_DICT && (m->nr_stack - (uint32_t)from) % 2 != 0)
		return -EBADMSG;
	parent = m->stack[below];
	if (m->to->node[parent].kind == kind)
		adopt(m, parent, (uint32_t)from);
	m->nr_stack = (uint32_t)below + 1;
	return 0;
}

static int memo_put(struct machine *m, uint64_t at)
{
	struct pickle_node *node = top(m);

	if (!node || node->kind == PICKLE_MARK || at >= MEMO_MAX)
		return -EBADMSG;
	if (at >= m->room_memo) {
		uint32_t room = MAX(2 * m->room_memo, (uint32_t)at + 64);
		uint32_t *more = reallocarray(m->memo, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		memset(more + m->room_memo, 0, (room - m->room_memo) * sizeof(*more));
		m->memo = more;
		m->room_memo = room;
	}
	m->memo[at] = m->stack[m->nr_stack - 1];
	return 0;
}

static int memo_get(struct machine *m, uint64_t at)
{
	struct pickle_node copy;

	if (at >= m->room_memo || m->memo[at] == 0)
		return -EBADMSG;
	copy = m->to->node[m->memo[at]];
	copy.next = 0;
	/* A copy of a container would share its children, which have one parent: it becomes a node without content. */
	if (copy.kind == PICKLE_LIST || copy.kind == PICKLE_DICT)
		copy = (struct pickle_node){ .kind = PICKLE_THING };
	return push(m, copy);
}

static bool ends_with(const struct pickle_node *n, const char *word)
{
	size_t len = strlen(word);

	return n && n->kind == PICKLE_GLOBAL && n->len >= len && memcmp(n->text + n->len - len, word, len) == 0;
}

/* Replace a function and its arguments on the stack by the result. */
static int reduce(struct machine *m)
{
	struct pickle_node *f, *arguments, made = { .kind = PICKLE_THING };

	if (m->nr_stack < 2)
		return -EBADMSG;
	f = &m->to->node[m->stack[m->nr_stack - 2]];
	arguments = &m->to->node[m->stack[m->nr_stack - 1]];
	if (f->kind == PICKLE_MARK || arguments->kind == PICKLE_MARK)
		return -EBADMSG;
	if (arguments->kind == PICKLE_LIST &&
	    (ends_with(f, "\n_rebuild_tensor_v2") || ends_with(f, "\n_rebuild_tensor"))) {
		made = *arguments;
		made.kind = PICKLE_TENSOR;
	} else if (arguments->kind == PICKLE_LIST && ends_with(f, "\n_rebuild_parameter") && arguments->first > 0) {
		made = m->to->node[arguments->first]; /* the tensor it contains */
	} else if (ends_with(f, "\nOrderedDict")) {
		made.kind = PICKLE_DICT;
	}
	made.next = 0;
	m->nr_stack -= 2;
	return push(m, made);
}

/* The tuple on top identifies a storage. */
static int persistent(struct machine *m)
{
	struct pickle_node *id = top(m);

	if (!id || id->kind != PICKLE_LIST)
		return -EBADMSG;
	id->kind = PICKLE_STORAGE;
	return 0;
}

static int push_long(struct machine *m)
{
	uint64_t len, n;

	if (take_number(m, 1, &len) < 0 || len > (uint64_t)(m->end - m->p))
		return -EBADMSG;
	n = number(m->p, (unsigned)MIN(len, UINT64_C(8)));
	if (len > 0 && len < 8 && (m->p[len - 1] & 0x80)) /* negative */
		n |= UINT64_MAX << 8 * len;
	m->p += len;
	return len <= 8 ? push_int(m, (int64_t)n) : push_kind(m, PICKLE_THING);
}

static int pop(struct machine *m)
{
	if (m->nr_stack == 0)
		return -EBADMSG;
	m->nr_stack--;
	return 0;
}

static int pop_mark(struct machine *m)
{
	int64_t from = behind_mark(m);

	if (from < 0)
		return -EBADMSG;
	m->nr_stack = (uint32_t)from - 1;
	return 0;
}

static int skip(struct machine *m, unsigned bytes)
{
	uint64_t n;

	return take_number(m, bytes, &n);
}

static int memo_numbered(struct machine *m, unsigned bytes, int (*what)(struct machine *, uint64_t))
{
	uint64_t at;

	return take_number(m, bytes, &at) < 0 ? -EBADMSG : what(m, at);
}

static int push_fixed(struct machine *m, unsigned bytes)
{
	uint64_t n;

	if (take_number(m, bytes, &n) < 0)
		return -EBADMSG;
	return push_int(m, bytes == 4 ? (int64_t)(int32_t)n : (int64_t)n);
}

static int push_float(struct machine *m)
{
	return skip(m, 8) < 0 ? -EBADMSG : push_kind(m, PICKLE_THING);
}

/* BUILD: sets the state of the object below it, which is ignored. */
static int build(struct machine *m)
{
	return m->nr_stack < 2 ? -EBADMSG : pop(m);
}

static int newobj(struct machine *m)
{
	int r = reduce(m);

	if (r == 0 && top(m)->kind != PICKLE_DICT)
		top(m)->kind = PICKLE_THING;
	return r;
}

/* 1: continue, 0: the end. */
static int run_opcode(struct machine *m)
{
	int r;

	if (m->p == m->end)
		return -EBADMSG;
	switch (*m->p++) {
	case '.':
		return 0;
	case 0x80: /* PROTO */
		r = skip(m, 1);
		break;
	case '(':
		r = push_kind(m, PICKLE_MARK);
		break;
	case ')':
	case ']':
		r = push_kind(m, PICKLE_LIST);
		break;
	case '}':
		r = push_kind(m, PICKLE_DICT);
		break;
	case 't':
	case 'l':
		r = push_children(m, PICKLE_LIST, -1);
		break;
	case 'd':
		r = push_children(m, PICKLE_DICT, -1);
		break;
	case 0x85:
	case 0x86:
	case 0x87:
		r = push_children(m, PICKLE_LIST, m->p[-1] - 0x84);
		break;
	case 'X': /* BINUNICODE */
	case 'T':
		r = push_text(m, 4, PICKLE_TEXT);
		break;
	case 'U':
	case 0x8c:
		r = push_text(m, 1, PICKLE_TEXT);
		break;
	case 'B':
		r = push_text(m, 4, PICKLE_THING);
		break;
	case 'C':
		r = push_text(m, 1, PICKLE_THING);
		break;
	case 'c':
		r = push_global(m);
		break;
	case 'q':
		r = memo_numbered(m, 1, memo_put);
		break;
	case 'r':
		r = memo_numbered(m, 4, memo_put);
		break;
	case 'h':
		r = memo_numbered(m, 1, memo_get);
		break;
	case 'j':
		r = memo_numbered(m, 4, memo_get);
		break;
	case 'K':
		r = push_fixed(m, 1);
		break;
	case 'M':
		r = push_fixed(m, 2);
		break;
	case 'J':
		r = push_fixed(m, 4);
		break;
	case 0x8a:
		r = push_long(m);
		break;
	case 'G':
		r = push_float(m);
		break;
	case 'N':
	case 0x88:
	case 0x89:
		r = push_kind(m, PICKLE_THING);
		break;
	case 'Q':
		r = persistent(m);
		break;
	case 'R':
		r = reduce(m);
		break;
	case 0x81:
		r = newobj(m);
		break;
	case 'b':
		r = build(m);
		break;
	case 's':
		r = extend(m, 2, PICKLE_DICT);
		break;
	case 'u':
		r = extend(m, -1, PICKLE_DICT);
		break;
	case 'a':
		r = extend(m, 1, PICKLE_LIST);
		break;
	case 'e':
		r = extend(m, -1, PICKLE_LIST);
		break;
	case '0':
		r = pop(m);
		break;
	case '1':
		r = pop_mark(m);
		break;
	default:
		return -EBADMSG;
	}
	return r < 0 ? r : 1;
}

int pickle_parse(const uint8_t *p, size_t len, struct pickle *ret)
{
	struct pickle to = { .nr = 1 };
	struct machine m = { .p = p, .end = p + len, .to = &to, .room = 256 };
	int r = -ENOMEM;

	to.node = calloc(m.room, sizeof(*to.node));
	m.stack = reallocarray(NULL, STACK_MAX, sizeof(*m.stack));
	if (to.node && m.stack)
		while ((r = run_opcode(&m)) > 0)
			;
	if (r == 0 && (m.nr_stack != 1 || top(&m)->kind == PICKLE_MARK))
		r = -EBADMSG;
	if (r == 0) {
		to.root = m.stack[0];
		*ret = to;
	} else {
		pickle_release(&to);
	}
	free(m.stack);
	free(m.memo);
	return r;
}
