/* A PKCS#11 library between levee and a sound one (REAL), which it asks, and then lies as LEVEE_LIE says. That it was loaded it
   notes in the file that LEVEE_LOADED names. Types and the order of functions: PKCS #11 2.40. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long ulong;
struct list { unsigned char version[2]; void *f[68]; };
struct attribute { ulong type; void *value; ulong length; };
struct mechanism { ulong type; void *parameter; ulong length; };
struct token_info { unsigned char label[32], manufacturer[32], model[16], serial[16]; ulong flags; };

enum { GET_TOKEN_INFO = 6, DESTROY_OBJECT = 22, GET_ATTRIBUTE_VALUE = 24, FIND_OBJECTS = 27, SIGN_INIT = 42, SIGN = 43 };
enum { SENSITIVE = 0x103, EXTRACTABLE = 0x162, NEVER_EXTRACTABLE = 0x164, EC_POINT = 0x181 };

static struct list *real, mine;

static int lies(const char *how) {
    const char *said = getenv("LEVEE_LIE");
    return said && !strcmp(said, how);
}

static ulong get_token_info(ulong slot, struct token_info *info) {
    ulong rv = ((ulong (*)(ulong, struct token_info *))real->f[GET_TOKEN_INFO])(slot, info);
    if (lies("final try")) info->flags |= 0x20000;
    if (lies("locked")) info->flags |= 0x40000;
    return rv;
}

static ulong get_attribute_value(ulong session, ulong object, struct attribute *all, ulong count) {
    ulong rv = ((ulong (*)(ulong, ulong, struct attribute *, ulong))real->f[GET_ATTRIBUTE_VALUE])(session, object, all, count);
    for (ulong at = 0; at < count; at++) {
        struct attribute *one = &all[at];
        if (lies("says nothing") && one->type == SENSITIVE) one->length = -1;
        if (!one->value || one->length == (ulong)-1) continue;
        if (lies("gives out") && one->type == EXTRACTABLE) *(char *)one->value = 1;
        if (lies("gave out") && one->type == NEVER_EXTRACTABLE) *(char *)one->value = 0;
        if (lies("point") && one->type == EC_POINT) memset((char *)one->value + 10, 0x41, one->length - 10);
    }
    return rv;
}

static ulong find_objects(ulong session, ulong *found, ulong most, ulong *count) {
    ulong rv = ((ulong (*)(ulong, ulong *, ulong, ulong *))real->f[FIND_OBJECTS])(session, found, most, count);
    if (lies("twice") && *count == 1 && most > 1) found[(*count)++] = found[0];
    if (lies("never there")) *count = 0;
    return rv;
}

static ulong destroy_object(ulong session, ulong object) {
    if (lies("kept")) return 0;
    return ((ulong (*)(ulong, ulong))real->f[DESTROY_OBJECT])(session, object);
}

static ulong sign_init(ulong session, struct mechanism *mechanism, ulong key) {
    if (lies("refuses")) return 0x30; /* CKR_DEVICE_ERROR */
    return ((ulong (*)(ulong, struct mechanism *, ulong))real->f[SIGN_INIT])(session, mechanism, key);
}

static ulong sign(ulong session, unsigned char *data, ulong length, unsigned char *signature, ulong *room) {
    unsigned char other[64];
    memcpy(other, data, length < 64 ? length : 64);
    if (lies("another digest")) other[length - 1] ^= 1;
    ulong rv = ((ulong (*)(ulong, unsigned char *, ulong, unsigned char *, ulong *))real->f[SIGN])(session, other, length, signature, room);
    if (rv || !signature) return rv;
    if (lies("another signature")) signature[5] ^= 1;
    if (lies("zeros")) memset(signature, 0, *room);
    if (lies("ones")) memset(signature, 0xff, *room);
    if (lies("short")) *room -= 1;
    if (lies("nothing")) *room = 0;
    return 0;
}

__attribute__((constructor)) static void loaded(void) {
    const char *note = getenv("LEVEE_LOADED");
    if (note) close(open(note, O_CREAT | O_WRONLY, 0600));
}

ulong C_GetFunctionList(struct list **list) {
    void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    ulong (*get)(struct list **) = library ? (ulong (*)(struct list **))dlsym(library, "C_GetFunctionList") : 0;
    if (!get || get(&real)) return 5; /* CKR_GENERAL_ERROR */
    mine = *real;
    mine.f[GET_TOKEN_INFO] = get_token_info;
    mine.f[DESTROY_OBJECT] = destroy_object;
    mine.f[GET_ATTRIBUTE_VALUE] = get_attribute_value;
    mine.f[FIND_OBJECTS] = find_objects;
    mine.f[SIGN_INIT] = sign_init;
    mine.f[SIGN] = sign;
    *list = &mine;
    return 0;
}
