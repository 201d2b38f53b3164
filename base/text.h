/* Names are bytes; what shows them to people and programs wants characters. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Bytes of the UTF-8 character at s, which is not its end; 0: it is none, as are overlong forms, surrogates and what
 * is beyond U+10FFFF. */
size_t utf8_len(const char *s);

#define JSON_CHAR_MAX 8

/* How many bytes of s, at least one, become the text in `ret` in a JSON string. A byte that is not UTF-8 becomes
 * U+0080 to U+00FF. */
size_t json_char(const char *s, char ret[JSON_CHAR_MAX]);
void json_print_string(FILE *to, const char *s); /* with its quotes */
/* A cell of a table: as it stands in JSON, cut where it has become `width` bytes, filled up to them. */
void json_print_cell(FILE *to, const char *s, int width);

/* For people, on one line of a terminal that nothing happens to: control characters, what is not UTF-8 and the
 * backslash become \ooo, as ls -b has it. Returns how many columns that takes, if each character takes one. */
size_t text_print(FILE *to, const char *s);
