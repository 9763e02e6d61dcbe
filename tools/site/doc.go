// Package site makes a site of the pages of this repository (make site): Hugo with the templates in this folder, and a
// search that needs no server. Its test follows the links of the site.
package site
