/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What agents leave behind goes with their world, as it does when processes end (peers_free() leaves to MPI what is on
 * its way). The linker gives us all that they allocate. */
#include <stdlib.h>

#include "worlds_internal.h"

#define SLOTS (1u << 16)

static void *slots[SLOTS];
static bool is_on;
static size_t nr;

void *__real_malloc(size_t len);
void *__real_calloc(size_t n, size_t len);
void *__real_realloc(void *p, size_t len);
void *__real_reallocarray(void *p, size_t n, size_t len);
void __real_free(void *p);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t n, size_t len);
void *__wrap_realloc(void *p, size_t len);
void *__wrap_reallocarray(void *p, size_t n, size_t len);
void __wrap_free(void *p);

static size_t slot_of(const void *p)
{
	return (size_t)((uintptr_t)p * UINT64_C(0x9e3779b97f4a7c15) >> 48);
}

static void *add(void *p)
{
	size_t i = slot_of(p);

	if (!is_on || !p)
		return p;
	if (++nr > SLOTS / 2)
		abort(); /* an agent that never frees anything */
	while (slots[i])
		i = (i + 1) % SLOTS;
	slots[i] = p;
	return p;
}

/* Those behind it move up. */
static void close_gap(size_t gap)
{
	for (size_t i = (gap + 1) % SLOTS; slots[i]; i = (i + 1) % SLOTS)
		if ((i - slot_of(slots[i])) % SLOTS >= (i - gap) % SLOTS) {
			slots[gap] = slots[i];
			gap = i;
		}
	slots[gap] = NULL;
}

static void drop(const void *p)
{
	for (size_t i = slot_of(p); p && slots[i]; i = (i + 1) % SLOTS)
		if (slots[i] == p) {
			nr--;
			close_gap(i);
			return;
		}
}

void *__wrap_malloc(size_t len)
{
	return add(__real_malloc(len));
}

void *__wrap_calloc(size_t n, size_t len)
{
	return add(__real_calloc(n, len));
}

void *__wrap_realloc(void *p, size_t len)
{
	drop(p);
	return add(__real_realloc(p, len)); /* want of memory does not happen here */
}

void *__wrap_reallocarray(void *p, size_t n, size_t len)
{
	drop(p);
	return add(__real_reallocarray(p, n, len));
}

void __wrap_free(void *p)
{
	drop(p);
	__real_free(p);
}

void memory_track(bool on)
{
	is_on = on;
}

void memory_free_all(void)
{
	for (size_t i = 0; i < SLOTS && nr > 0; i++) /* all of them go, so gaps make no difference */
		if (slots[i]) {
			__real_free(slots[i]);
			slots[i] = NULL;
			nr--;
		}
}
