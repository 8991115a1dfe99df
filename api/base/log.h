/*
 * Structured log lines on standard error: one event a line, `key=value`,
 * sandbox id first where there is one.
 *
 *   error  someone must act      info   state changes
 *   warn   we went on            debug  for the developer (HUTCH_LOG=debug)
 *
 * Text that a guest or a client chose goes through log_quoted(), which escapes
 * control bytes and quotes and cuts at LOG_TEXT_BYTES_MAX: between its "..."
 * it can neither begin a line nor a key.  log_text() is the same for people:
 * quotes stay.  Thread safe: one write(2) a line.
 */
#ifndef HUTCH_LOG_H
#define HUTCH_LOG_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_LINE_BYTES_MAX 1024
#define LOG_TEXT_BYTES_MAX 256

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Name in front of each line, e.g. "hutchd"; level from HUTCH_LOG. */
void log_init(const char *program);
void log_set_level(enum log_level level);
/*
 * Who decides about each line that the level lets through; NULL = nobody.
 * `fmt` tells the kind: the same call site has the same pointer.  Any thread;
 * set before threads start.
 */
typedef bool (*log_gate_fn)(enum log_level level, const char *fmt);
void log_set_gate(log_gate_fn gate);
void log_line(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

struct log_text {
	char s[LOG_TEXT_BYTES_MAX + 8];
};
/* Printable copy of `len` foreign bytes: log_text(p, n).s */
struct log_text log_text(const void *data, size_t len);
struct log_text log_quoted(const void *data, size_t len);

#endif
