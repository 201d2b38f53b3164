/* SPDX-License-Identifier: BSD-3-Clause */
/* Names are bytes; output for people and programs needs characters. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/util.h"

/* Bytes of the UTF-8 character at s, which is not its end; 0: it is none, as are overlong forms, surrogates and what
 * is beyond U+10FFFF. */
size_t utf8_len(const char *s);
uint32_t utf8_code_point(const char *s, size_t len); /* len: utf8_len(); 0: the byte itself */

/* Is the character of `len` bytes at s invisible or interpreted by a terminal: control and format characters, such as
 * those that change the direction of writing, and line separators? Also with len 0: it is not UTF-8. */
bool text_is_control(const char *s, size_t len);

/* Prints safely on one line of a terminal: control and format characters, invalid UTF-8 and the backslash become \ooo,
 * as in ls -b. Returns the number of columns, if each character takes one. */
size_t text_print(FILE *to, const char *s);
size_t text_columns(const char *s); /* the same without printing */
/* The same for a message with names in it. Only a newline at the end of the format is kept. */
void text_printf(FILE *to, const char *fmt, ...) _printf_(2, 3);
void text_vprintf(FILE *to, const char *fmt, va_list args) _printf_(2, 0);

#define TEXT_CHAR_MAX 17
/* How many bytes of s, at least one, become the text in `ret` in that form. */
size_t text_char(const char *s, char ret[TEXT_CHAR_MAX]);
