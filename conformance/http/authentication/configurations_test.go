package authentication

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"plinth/internal/auth/oidc"
)

// ownIssuer is the issuer of service accounts.
const ownIssuer = "https://own.example.com"

var (
	codecs   = newCodecs()
	compiler = authenticationcel.NewDefaultCompiler()
)

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
}

// theirs reads a configuration as kube-apiserver does.
func theirs(text string) (*apiserver.AuthenticationConfiguration, error) {
	if text == "" {
		return nil, errors.New("empty config data")
	}
	object, err := runtime.Decode(codecs.UniversalDecoder(), []byte(text))
	if err != nil {
		return nil, err
	}
	c, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", object)
	}
	return c, validation.ValidateAuthenticationConfiguration(compiler, c, []string{ownIssuer}).ToAggregate()
}

// ours reads a configuration as Plinth does.
func ours(text string) (*oidc.Configuration, error) {
	c, err := oidc.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return c, c.Validate([]string{ownIssuer})
}

var (
	schemeName = regexp.MustCompile(` in scheme "[^"]*"`)
	goType     = regexp.MustCompile(` (into|of type) .*`)
	generated  = regexp.MustCompile(`(?s)^json: cannot unmarshal (\w+)( \S+)? into Go (struct field \w+\.|value).*`)
)

// plain returns an error's text without the parts that only depend on the implementation.
func plain(err error) string {
	if err == nil {
		return ""
	}
	text := schemeName.ReplaceAllString(err.Error(), "")
	text = generated.ReplaceAllString(text, "json: cannot unmarshal $1")
	return goType.ReplaceAllString(text, "")
}

const good = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://issuer.example.com
    audiences: [me]
  claimMappings:
    username: {claim: sub, prefix: "x:"}
`

// with returns the valid configuration with some of its lines replaced by others.
func with(pairs ...string) string {
	text := good
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			panic(pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// issuer returns the valid configuration with lines added to the issuer.
func issuer(lines string) string {
	return with("    url: https://issuer.example.com\n    audiences: [me]\n", indent(lines, 4))
}

// mappings returns the valid configuration with lines added to claimMappings.
func mappings(lines string) string {
	return with("    username: {claim: sub, prefix: \"x:\"}\n", indent(lines, 4))
}

// more returns the valid configuration with lines added to the authenticator.
func more(lines string) string { return good + indent(lines, 2) }

func indent(lines string, n int) string {
	var out strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		out.WriteString(strings.Repeat(" ", n) + line + "\n")
	}
	return out.String()
}

// expressions are CEL expressions over claims: some compile and some do not, and their results have various types.
var expressions = []string{
	`claims.sub`, `claims.email`, `claims.?email.orValue('')`, `claims.email_verified ? claims.email : ''`,
	`claims.?email_verified.orValue(true) ? claims.?email.orValue('x') : 'y'`, `'x:' + claims.sub`, `claims['email']`,
	`claims.groups`, `claims.groups + ['x']`, `claims.groups.map(g, 'p:' + g)`, `[claims.sub, '']`, `['a', 'b']`, `[]`,
	`''`, `null`, `1`, `1.5`,
	`true`, `claims`, `claims.nested.role`, `claims.nested.list`, `claims.nested.deep.deeper`,
	`claims.example__dot__com__slash__role`,
	`claims.nested.example__dot__com__slash__role`, `claims.list_of_maps[0].example__dot__com__slash__role`,
	`claims.list_of_maps.map(m, m.name)`,
	`claims.missing`, `has(claims.missing) ? claims.missing : 'none'`, `has(claims.nested.role)`, `claims.number`,
	`claims.number > 1.0`, `claims.number == 3`,
	`claims.boolean`, `claims.nothing`, `claims.nothing == null`, `string(claims.number)`, `int(claims.number)`,
	`claims.sub == 'jane'`, `claims.sub != 'jane'`,
	`claims.sub.startsWith('j')`, `claims.sub.size() > 3`, `size(claims.groups)`, `claims.groups.exists(g, g == 'devs')`,
	`'devs' in claims.groups`,
	`claims.groups.all(g, g.startsWith('d'))`, `sets.equivalent(claims.groups, ['devs', 'ops'])`, `claims.aud == 'me'`,
	`claims.exp - claims.iat <= 3600.0`,
	`claims.sub.matches('^j')`, `claims.sub.matches('(')`, `url(claims.iss).getHost()`, `quantity('1') == quantity('1')`,
	`claims.sub.split('')`,
	`claims.sub.split('').map(c, c == 'j' ? '' : c)`, `claims.groups[0]`, `claims.groups[9]`, `claims.nested`,
	`dyn([1, 'a'])`, `[dyn(1), dyn('a')]`,
	`claims.map(k, k)`, `claims.exists(k, k == 'sub')`, `size(claims) > 0`, `'sub' in claims`,
	`type(claims.sub) == string`, `type(claims) == map`, `b'abc'`,
	`duration('1h')`, `timestamp('2020-01-01T00:00:00Z')`, `optional.of('x')`, `claims.?sub`,
	`claims[?'sub'].orValue('y')`, `claims.sub + 1`,
	`claims.email + (has(claims.email_verified) ? '' : '')`, `{'email': claims.email}.email`,
	`[claims.email].filter(e, claims.email_verified)[0]`,
	`other`, `user.username`, `self`, `(`, `claims.`, `claims.sub ==`, `"`, `request.user`,
	`kubernetes.UserInfo{username: 'x'}`,
	`ip('1.2.3.4').family() == 4`, `isIP(claims.sub)`, `format.dns1123Label().validate(claims.sub).hasValue()`,
	`semver('1.2.3').major() == 1`,
	`authorizer.group('').resource('pods').check('get').allowed()`, `lists.range(3)`, `claims.groups.sort()`,
	`claims.groups.join(',')`,
}

// conditions are CEL expressions over a user.
var conditions = []string{
	`user.username == 'jane'`, `user.username != 'jane'`, `!user.username.startsWith('system:')`,
	`user.groups.all(g, !g.startsWith('system:'))`, `user.uid == ''`,
	`user.uid != ''`, `size(user.groups) > 0`, `user.groups[0] == 'devs'`, `'example.com/role' in user.extra`,
	`user.extra['example.com/role'][0] == 'boss'`,
	`user.extra.example__dot__com__slash__role[0] == 'boss'`, `has(user.extra)`, `has(user.missing)`, `user.missing == 1`,
	`user.username`, `user`, `claims.sub == 'x'`, `1`,
	`true`, `false`, `size(user.extra) == 0`, `user.extra.all(k, k.size() > 3)`,
	`user.groups.exists(g, g == 'system:authenticated')`, `user.groups[7] == 'x'`,
	`user == user`, `type(user) == kubernetes.UserInfo`, `dyn(user.username)`, `user.username.matches(user.uid)`,
	`user.groups == ['devs', 'ops']`, `(`,
	`{'a': user.username}.a == 'jane'`, `kubernetes.UserInfo{username: 'x'}.username == 'x'`,
}

// configurations returns valid and invalid configurations.
func configurations() []string {
	quoted := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	all := []string{
		good, "", "{", "a: b: c", "x", "[]", "kind: AuthenticationConfiguration\n",
		"apiVersion: apiserver.config.k8s.io/v1\n",
		with("v1", "v1beta1"), with("v1", "v1alpha1"), with("v1", "v2"), with("apiserver.config.k8s.io/v1", "v1"),
		with("apiserver.config.k8s.io/v1", "a/b/c"),
		with("kind: AuthenticationConfiguration", "kind: Authentication"), with("jwt:", "JWT:"), with("jwt:", "jwts:"),
		with("- issuer:", "- x: 1\n  issuer:"),
		with("    audiences: [me]", "    audiences: me"), with("    audiences: [me]", "    audiences: [1]"),
		with("audiences: [me]", "audiences: [me]\n    audiences: [you]"),
		with("claim: sub", "claim: 1"), with("claim: sub", "Claim: sub"), with("claim: sub", "claim: sub, claim: sub"),
		good + "anonymous: {enabled: true}\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: null\n",
		good + "anonymous: {enabled: false}\n", good + "anonymous: {enabled: true, conditions: [{path: /livez}]}\n",
		good + "anonymous: {enabled: false, conditions: [{path: /livez}, {path: \"\"}]}\n",
		good + "anonymous: {enabled: 1}\n", good + "anonymous: {conditions: []}\n",
		good + "anonymous: {enabled: false, conditions: [{path: /livez, x: 1}]}\n",
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[]}`,
		` {"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[],"jwt":[],"x":1}`,
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":{}}`,
		good + strings.TrimPrefix(good, good[:strings.Index(good, "- issuer")]),
		good + strings.Replace(strings.TrimPrefix(good, good[:strings.Index(good, "- issuer")]), "issuer.example",
			"other.example", 1),
	}
	for _, url := range []string{
		"https://a.example.com", "http://a.example.com", "https://u:p@a.example.com", "https://a.example.com?x=1",
		"https://a.example.com/#f", "::", "\"\"", "a",
		"https://a.example.com/%zz", ownIssuer, ownIssuer + "/", "HTTPS://a.example.com", "ftp://u@a/?x#y", "https://",
		"\"https://a.example.com\\u0000\"",
	} {
		all = append(all, issuer("url: "+url+"\naudiences: [me]"),
			issuer("url: https://b.example.com\naudiences: [me]\ndiscoveryURL: "+url),
			issuer("url: https://a.example.com\naudiences: [me]\ndiscoveryURL: "+url),
			issuer("audiences: [me]\ndiscoveryURL: "+url))
	}
	for _, audiences := range []string{"[]", "[a]", "[a, b]", "[a, a]", "[\"\"]", "[a, \"\", \"\"]", "null"} {
		for _, policy := range []string{"", "\naudienceMatchPolicy: MatchAny", "\naudienceMatchPolicy: MatchAll",
			"\naudienceMatchPolicy: \"\""} {
			all = append(all, issuer("url: https://a.example.com\naudiences: "+audiences+policy))
		}
	}
	const pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	for _, extra := range []string{
		"certificateAuthority: x", "certificateAuthority: |\n  " + strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n  "),
		"egressSelectorType: cluster",
		"egressSelectorType: controlplane", "egressSelectorType: master", "egressSelectorType: etcd",
		"certificateAuthority: \"\"",
	} {
		all = append(all, issuer("url: https://a.example.com\naudiences: [me]\n"+extra))
	}
	for _, user := range []string{
		"{}", "{claim: sub}", "{prefix: x}", "{claim: sub, prefix: \"\"}", "{claim: sub, expression: claims.sub}",
		"{expression: claims.sub, prefix: x}",
		"{expression: claims.sub, prefix: \"\"}", "{expression: (, prefix: x}", "{claim: \"\", expression: \"\"}", "null",
	} {
		for _, rest := range []string{"", "\ngroups: " + user, "\nuid: {claim: a}", "\nuid: {claim: a, expression: b}",
			"\nuid: {expression: (}"} {
			all = append(all, mappings("username: "+user+rest))
		}
		all = append(all, mappings("username: {claim: a, prefix: b}\ngroups: "+user))
	}
	for _, key := range []string{
		"example.com/a", "a", "/a", "a/", "\"\"", "Example.com/a", "example.com/A", "k8s.io/a", "x.k8s.io/a",
		"kubernetes.io/a", "x.kubernetes.io/b", "xkubernetes.io/b",
		"K8s.io/a", "example.com/a b", "example.com/a/b", "example..com/a", "example.com/ä", "-x/a",
		"authentication.kubernetes.io/credential-id",
	} {
		all = append(all, mappings("username: {claim: a, prefix: b}\nextra:\n- {key: "+key+", valueExpression: claims.a}"),
			mappings("username: {claim: a, prefix: b}\nextra:\n- {key: "+key+"}\n- {key: "+key+", valueExpression: \"1\"}"),
			mappings("username: {claim: a, prefix: b}\nextra:\n- {key: example.com/a, valueExpression: claims.a}\n- {key: "+key+
				", valueExpression: (}"))
	}
	for _, e := range expressions {
		q := quoted(e)
		all = append(all, mappings("username: {expression: "+q+"}"),
			mappings("username: {claim: a, prefix: b}\ngroups: {expression: "+q+"}"),
			mappings("username: {claim: a, prefix: b}\nuid: {expression: "+q+"}"),
			mappings("username: {expression: claims.email}\nextra:\n- {key: example.com/a, valueExpression: "+q+"}"),
			more("claimValidationRules:\n- {expression: "+q+"}\n- {expression: "+q+", message: x}\n- {expression: "+q+
				", requiredValue: x}"),
			with("username: {claim: sub, prefix: \"x:\"}",
				"username: {expression: claims.email}")+indent("claimValidationRules:\n- {expression: "+q+"}", 2))
	}
	for _, rule := range []string{
		"{}", "{claim: a}", "{claim: a, requiredValue: b}", "{claim: a, message: b}", "{claim: a, expression: b}",
		"{requiredValue: b}", "{message: b}",
		"{expression: \"true\", requiredValue: b}", "{expression: \"true\", message: b}",
	} {
		for _, other := range []string{"", "\n- {claim: a}", "\n- {expression: \"true\"}"} {
			all = append(all, more("claimValidationRules:\n- "+rule+other))
		}
	}
	for _, e := range append(slices.Clone(conditions), "") {
		all = append(all, more("userValidationRules:\n- {expression: "+quoted(e)+", message: x}\n- {expression: \"true\"}"),
			more("userValidationRules:\n- {expression: "+quoted(e)+"}\n- {expression: "+quoted(e)+"}"))
	}
	many := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"
	for range 65 {
		many += "- {}\n"
	}
	return append(all, many, strings.TrimSuffix(many, "- {}\n"))
}

// SPEC: AUTH-1
func TestConfigurations(t *testing.T) {
	refused, taken := 0, 0
	for _, text := range configurations() {
		_, their := theirs(text)
		_, our := ours(text)
		if plain(their) != plain(our) {
			t.Errorf("%s\nreference: %v\nplinth:    %v", text, their, our)
		}
		if their == nil {
			taken++
		} else {
			refused++
		}
	}
	if refused < 400 || taken < 150 {
		t.Errorf("only %d configurations are refused and %d taken", refused, taken)
	}
}
