/* ckptfs-compact --background: out of everybody's way. */
#pragma once

/*
 * A low priority, an end with whoever has started it and, where that is allowed, a mount namespace of its own: what it
 * has open then keeps nobody from unmounting. Before anything is opened. What cannot be had is done without.
 */
void compact_step_back(void);
