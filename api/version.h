/* The one place of the product's version. */
#ifndef HUTCH_VERSION_H
#define HUTCH_VERSION_H

#define HUTCH_VERSION "0.1.0"

#endif
