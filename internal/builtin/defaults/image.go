package defaults

import "strings"

// maxRepositoryPath is the greatest length of the path of an image within its registry.
const maxRepositoryPath = 255

// taggedLatest says whether an image name is a valid one that means the tag latest: because it has this tag, or because
// it has neither a tag nor a digest. The grammar, with a few rules of Docker Hub's on where a registry begins:
//
//	name   [ registry "/" ] component { "/" component } [ ":" tag ] [ "@" digest ]
func taggedLatest(image string) bool {
	name, digest, pinned := strings.Cut(image, "@")
	name, tag, tagged := cutTag(name)
	switch {
	case tagged && tag != "latest", pinned && !tagged:
		return false
	case pinned && !validDigest(digest):
		return false
	case !tagged && len(name) == 64 && isHex(name):
		return false // would be taken for the ID of an image
	}
	return validRepository(name)
}

// cutTag splits at the colon after the last slash; colons before it belong to the port of a registry.
func cutTag(name string) (rest, tag string, found bool) {
	last := strings.LastIndexByte(name, '/')
	if colon := strings.LastIndexByte(name, ':'); colon > last {
		return name[:colon], name[colon+1:], true
	}
	return name, "", false
}

func validDigest(digest string) bool {
	algorithm, sum, _ := strings.Cut(digest, ":")
	switch algorithm {
	case "sha256":
		return len(sum) == 64 && isHex(sum)
	case "sha384":
		return len(sum) == 96 && isHex(sum)
	case "sha512":
		return len(sum) == 128 && isHex(sum)
	}
	return false
}

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func validRepository(name string) bool {
	registry, path := cutRegistry(name)
	length := len(path)
	if registry == "docker.io" && !strings.Contains(path, "/") {
		length += len("library/")
	}
	if !validPath(path) {
		return false
	}
	if validRegistry(registry) {
		return length <= maxRepositoryPath
	}
	// A text that looks like a registry but is not valid as one may still be a component of a path.
	return validComponent(registry) && len(registry)+1+length <= maxRepositoryPath
}

// cutRegistry treats the first component as a registry if it looks like one, and otherwise adds that of Docker Hub.
func cutRegistry(name string) (registry, path string) {
	first, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io", name
	case first == "index.docker.io":
		return "docker.io", rest
	case first == "localhost", strings.ContainsAny(first, ".:"), hasUpper(first):
		return first, rest
	}
	return "docker.io", name
}

func hasUpper(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			return true
		}
	}
	return false
}

// validRegistry accepts a domain name or an address, with or without a port.
func validRegistry(host string) bool {
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		return end > 1 && validIPv6(host[1:end]) && validPort(host[end+1:])
	}
	if colon := strings.IndexByte(host, ':'); colon >= 0 {
		if !validPort(host[colon:]) {
			return false
		}
		host = host[:colon]
	}
	for label := range strings.SplitSeq(host, ".") {
		if !validLabel(label) {
			return false
		}
	}
	return true
}

func validIPv6(address string) bool {
	for i := 0; i < len(address); i++ {
		if c := address[i]; c != ':' && !isDigit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// validPort accepts the empty text, or a colon and digits.
func validPort(port string) bool {
	if port == "" {
		return true
	}
	if len(port) == 1 || port[0] != ':' {
		return false
	}
	for i := 1; i < len(port); i++ {
		if !isDigit(port[i]) {
			return false
		}
	}
	return true
}

// validLabel accepts letters, digits, and dashes within.
func validLabel(label string) bool {
	if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := 0; i < len(label); i++ {
		if c := label[i]; c != '-' && !isDigit(c) && !isLower(c) && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

func validPath(path string) bool {
	for component := range strings.SplitSeq(path, "/") {
		if !validComponent(component) {
			return false
		}
	}
	return true
}

// validComponent accepts runs of lower case letters and digits, with one separator between two: a dot, one or two
// underscores, or any number of dashes.
func validComponent(component string) bool {
	for i := 0; ; {
		start := i
		for i < len(component) && (isDigit(component[i]) || isLower(component[i])) {
			i++
		}
		if i == start {
			return false
		}
		if i == len(component) {
			return true
		}
		n := separator(component[i:])
		if n == 0 {
			return false
		}
		i += n
	}
}

// separator is the length of the separator at the start.
func separator(s string) int {
	switch s[0] {
	case '.':
		return 1
	case '_':
		if len(s) > 1 && s[1] == '_' {
			return 2
		}
		return 1
	case '-':
		n := 1
		for n < len(s) && s[n] == '-' {
			n++
		}
		return n
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
