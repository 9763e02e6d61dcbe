// Package guides does what the pages of docs/guides and other pages with commands say, and compares what is printed
// with what they show.
//
// The commands of a page are its blocks of Markdown that begin with ```sh. They run in their order in one bash, which
// begins in an empty directory with plinth and kubectl on the PATH. What a page shows is in blocks that begin with
// ```text: each is all that the commands of the block before it print.
//
//   - … within a line is any text, and on a line of its own any number of lines. It stands for what is different each
//     time (ports, times, UIDs) or would be long. Several spaces are one, since the widths of columns follow ages.
//   - Every command has to succeed, also one in a function, in a substitution or in front of a pipe.
//   - A block that begins with ```sh fails has one command that fails, and is followed by what it prints: a command
//     that succeeds, and one that fails for another reason than the page shows, is an error of the page.
//   - A block that begins with ```sh elsewhere is not run: it needs another machine, or root. Guides have none.
package guides
