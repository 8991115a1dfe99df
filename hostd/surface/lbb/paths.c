/*
 * Paths of a workspace in queries and answers: text, or the bytes in
 * hexadecimal of one that is not UTF-8.
 */
#include "../../http/json_str.h"
#include "lbb.h"
#include <stdio.h>
#include <string.h>

int64_t lbb_hex_bytes(const char *text, uint8_t *dst, size_t cap)
{
	size_t n = strlen(text);

	if (n % 2 || n / 2 > cap)
		return -1;
	for (size_t i = 0; i < n; i += 2) {
		int hi = json_hex((uint8_t)text[i]);
		int lo = json_hex((uint8_t)text[i + 1]);

		if (hi < 0 || lo < 0)
			return -1;
		dst[i / 2] = (uint8_t)(hi << 4 | lo);
	}
	return (int64_t)(n / 2);
}

int lbb_path(struct request *r, const char *param, const char *hex_param,
	     bool is_needed, struct file_path *ret)
{
	const char *text = query_get(&r->query, param);
	const char *hex = query_get(&r->query, hex_param);
	uint8_t bytes[GP_FILE_PATH_BYTES_MAX + sizeof("/workspace/")];
	int64_t len = 0;
	struct err e;
	int rc;

	if (text && hex)
		rc = err_set(&e, ERR_INVALID_REQUEST, hex_param,
			     "%s and %s are the same: give one", param,
			     hex_param);
	else if (hex && (len = lbb_hex_bytes(hex, bytes, sizeof(bytes))) < 0)
		rc = err_set(&e, ERR_PATH_INVALID, hex_param,
			     "%s is not the bytes of a path in hexadecimal, at "
			     "most %zu of them",
			     hex_param, sizeof(bytes));
	else if (is_needed && !text && !hex)
		rc = err_set(&e, ERR_INVALID_REQUEST, param,
			     "the query parameter %s is missing", param);
	else if (hex)
		rc = file_path_clean(bytes, (size_t)len, ret, &e);
	else
		rc = file_path_clean(text ? text : "", text ? strlen(text) : 0,
				     ret, &e);
	if (rc && e.code == ERR_PATH_INVALID && !strcmp(e.param, "path"))
		snprintf(e.param, sizeof(e.param), "%s", param);
	if (!rc && is_needed && !ret->len)
		rc = err_set(&e, ERR_PATH_INVALID, param,
			     "the path names the workspace itself");
	if (rc)
		reply_err(r, &e);
	return rc;
}

void lbb_put_path(struct json_out *j, const void *path, size_t len)
{
	if (json_out_text(j, "path", path, len))
		json_out_hex(j, "path_hex", path, len);
}
