/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The collector's protocol (store/gc/gc.c) for one chunk, against two writers that may share it, a reader, and a program
 * that deletes the last reference to it: every interleaving.
 *
 * Must hold: what a recipe refers to is there, and a reader that has found it in a recipe reads it.
 *
 * Each -D leaves one step out; then spin must find where it goes wrong (collect.sh):
 *   NO_PENDING    a chunk may be shared though it is gc-pending
 *   NO_MARK       what enters the log is not marked
 *   NO_WAIT       the decision waits for no user of the store
 *   NO_KEEP       chunks marked meanwhile are freed all the same
 *   NO_FORGET     tables in memory are not dropped
 *   NO_WAIT2      and no thread is waited for that may put one back
 *   NO_WAIT3      or that has read one before it was dropped again
 */
#define WRITERS 2

bool data = true;	/* the bytes are on disk */
byte refs = 1;		/* recipes that have it, in the log */
bool gone = false;	/* 'F' is in the log */
bool cached = false;	/* a table in memory that names the chunk */
bool window = false, live = false, gc_pending = false;
byte number = 0;	/* of the epoch, modulo 4 */
byte inside[2];
byte done = 0;		/* collections */

#define HERE (number % 2)

/* Atomic as a whole: that it is, is what epoch.c does with its second look. */
inline enter(ticket) { atomic { ticket = HERE; inside[ticket]++ } }
inline leave(ticket) { atomic { inside[ticket]-- } }

inline epoch_wait() {
	atomic { old = HERE; number = (number + 1) % 4 };
	(inside[old] == 0)
}

/* A job: looks for the chunk by its fingerprint, takes it, and a little later logs a reference to it. */
proctype writer()
{
	byte ticket;
	bool named, shared;
	byte rounds = 0;

	do
	:: rounds < 2 ->
		rounds++;
		enter(ticket);
		shared = false;
		if
		:: cached -> named = true
		:: !cached ->
			named = !gone;		/* the table is read, and then told what is gone */
			if
			:: named -> cached = true	/* and kept: a moment later */
			:: else
			fi
		fi;
#ifdef NO_PENDING
		shared = named;
#else
		atomic { shared = named && !(window && gc_pending) };
#endif
		if
		:: shared ->
			atomic {	/* content_log(): one step under view_lock */
				assert(data);
				refs++;
#ifndef NO_MARK
				if
				:: window -> live = true
				:: else
				fi
#endif
			}
		:: else	/* stores its own */
		fi;
		leave(ticket)
	:: else -> break
	od
}

proctype reader()
{
	byte ticket;
	bool found;

	enter(ticket);
	found = refs > 0;
	if
	:: found -> assert(data)
	:: else
	fi;
	leave(ticket)
}

proctype deleter()
{
	do
	:: atomic { refs > 0 -> refs-- }
	:: done == 2 -> break
	od
}

proctype collector()
{
	byte old;

	do
	:: done < 2 && !gone ->
		atomic { window = true; live = refs > 0; gc_pending = false };	/* view_lock held exclusively */
		if
		:: !live ->
			gc_pending = true;
#ifndef NO_WAIT
			epoch_wait();
#endif
#ifndef NO_KEEP
			if
			:: live -> gc_pending = false
			:: else
			fi;
#endif
			if
			:: gc_pending ->
				gone = true;	/* and committed */
#ifndef NO_FORGET
				cached = false;
#ifndef NO_WAIT2
				epoch_wait();
#endif
				cached = false;
#ifndef NO_WAIT3
				epoch_wait();
#endif
#endif
				atomic { window = false; gc_pending = false };
				data = false
			:: else -> atomic { window = false; gc_pending = false }
			fi
		:: else -> window = false
		fi;
		done++
	:: else -> break
	od;
	done = 2
}

init {
	atomic {
		run writer(); run writer(); run reader(); run deleter(); run collector()
	}
}

/* At any time. */
active proctype invariant() { assert(refs == 0 || data) }
