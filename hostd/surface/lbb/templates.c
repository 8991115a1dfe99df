/*
 * Base templates: what this host has images for.  Saved templates come later;
 * their records have the same shape.
 */
#include "../../link/template.h"
#include "lbb.h"

static const char *const bases[] = {"lbb/python", "lbb/node", "lbb/shell"};
#define BASES (sizeof(bases) / sizeof(*bases))

static bool put_base(struct json_out *j, struct link *link, const char *name)
{
	uint8_t image[HASH_BYTES], kernel[HASH_BYTES];

	if (template_hashes(link, name, image, kernel))
		return false;
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "template");
	json_out_null(j, "id");
	json_out_str(j, "name", name);
	json_out_bool(j, "is_base", true);
	json_out_null(j, "version");
	json_out_str(j, "base", name);
	json_out_hex(j, "image_sha256", image, HASH_BYTES);
	json_out_hex(j, "kernel_sha256", kernel, HASH_BYTES);
	json_out_begin(j, "limits", '{');
	json_out_u64(j, "vcpus", LBB_VCPUS_DEFAULT);
	json_out_u64(j, "memory_mib", LBB_MEMORY_DEFAULT);
	json_out_u64(j, "disk_mib", LBB_DISK_DEFAULT);
	json_out_end(j, '}');
	json_out_u64(j, "timeout_ms", ENGINE_TIMEOUT_MS_DEFAULT);
	json_out_end(j, '}');
	return true;
}

static void retrieve(struct request *r, const char *param, const char *name)
{
	struct json_out j = {0};
	struct err e;

	for (size_t i = 0; i < BASES; i++) {
		if (strcmp(name, bases[i]) ||
		    !put_base(&j, r->services->link, name))
			continue;
		reply_json(r, 200, &j);
		return;
	}
	err_set(&e, ERR_TEMPLATE_NOT_FOUND, param,
		"there is no template \"%.80s\"", name);
	reply_err(r, &e);
}

void lbb_templates(struct request *r)
{
	const char *name = query_get(&r->query, "name");
	const char *template = query_get(&r->query, "template");
	struct json_out j = {0};
	struct err e;

	if (name && template) {
		err_set(&e, ERR_INVALID_REQUEST, "template",
			"name and template together: give one of them");
		reply_err(r, &e);
		return;
	}
	if (name || template) {
		retrieve(r, name ? "name" : "template", name ? name : template);
		return;
	}
	lbb_list_begin(&j);
	for (size_t i = 0; i < BASES; i++)
		put_base(&j, r->services->link, bases[i]);
	lbb_list_end(&j, false, NULL);
	reply_json(r, 200, &j);
}
