package cel

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/ext"
	kube "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// Limits of devices and of their selectors, from the resource API.
const (
	maxDriver      = 63
	maxDomain      = 63
	maxIdentifier  = 32
	maxAttribute   = 64
	maxAttributes  = 32
	deviceTypeName = "kubernetes.DRADevice"
)

// DeviceOptions say what new expressions about devices may use. The zero value is for the gates as they are by default.
type DeviceOptions struct {
	// Latest says that they may use functions of this version, too, as Scope.Latest.
	Latest bool
	// NotShared says that devices have no allowMultipleAllocations (gate DRAConsumableCapacity, turned off).
	NotShared bool
	// Lists says that attributes may be lists (gate DRAListTypeAttributes). With Unlisted it is for a release that has to
	// be able to read the expression and has none: as in the reference, there is no device then.
	Lists, Unlisted bool
}

// CheckDevice checks an expression that selects devices, or that computes an attribute of a device. It returns the
// error in the expression ("" if it is valid), and how much a valid expression costs at most. An error is one of the
// environment and not of the expression.
func CheckDevice(expression string, computes bool, o DeviceOptions) (fault string, cost uint64, err error) {
	d, err := selectorsOf.get(o)
	if err != nil {
		return "", 0, err
	}
	ast, issues := d.env.Compile(expression)
	if issues != nil {
		return "compilation failed: " + issues.String(), 0, nil
	}
	if d.device == nil {
		return `unexpected error loading CEL environment: "device" variable is not declared`, 0, nil
	}
	out := ast.OutputType()
	switch {
	case computes && !isScalar(out) && !(o.Lists && out.TypeName() == "list" && len(out.Parameters()) == 1 &&
		isScalar(out.Parameters()[0])):
		kinds := "a primitive scalar (string, integer, boolean, semver)"
		if o.Lists {
			kinds += " or a list of these scalars"
		}
		return fmt.Sprintf("must evaluate to %s, not %s", kinds, out), 0, nil
	case !computes && !out.IsExactType(cel.BoolType) && !out.IsExactType(d.attribute.CelType()):
		return fmt.Sprintf("must evaluate to bool or the unknown type, not %s", out), 0, nil
	}
	if _, err := d.env.Program(ast); err != nil {
		return "", 0, err
	}
	estimate, err := d.env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: d.deviceSizes})
	return "", estimate.Max, err
}

// isScalar says whether a type is that of an attribute, or unknown.
func isScalar(t *cel.Type) bool {
	for _, scalar := range []*cel.Type{cel.BoolType, cel.IntType, cel.StringType, cel.AnyType, cel.DynType,
		kube.SemverType} {
		if t.IsExactType(scalar) {
			return true
		}
	}
	return false
}

// selectors is the environment of expressions about devices.
type selectors struct {
	env *cel.Env
	deviceSizes
}

var selectorsOf = byOptions[DeviceOptions, *selectors]{build: DeviceOptions.build}

// build makes an environment: that of new rules with the variable device and bindings. conformance/oracle/cel compares
// it with the reference's, k8s.io/dynamic-resource-allocation/cel.
func (o DeviceOptions) build() (*selectors, error) {
	plain, err := newRules()
	if o.Latest {
		plain, err = storedRules()
	}
	if err != nil {
		return nil, err
	}
	options := []cel.EnvOption{ext.Bindings(ext.BindingsVersion(0))}
	s := &selectors{}
	if !o.Lists || !o.Unlisted {
		s.device, s.attribute = o.deviceType()
		provider := kube.NewDeclTypeProvider(s.device)
		provider.SetRecognizeKeywordAsFieldName(true)
		types, err := provider.EnvOptions(plain.CELTypeProvider())
		if err != nil {
			return nil, err
		}
		options = append(append(options, cel.Variable("device", s.device.CelType())), types...)
		if o.Lists {
			options = append(options, library.IncludesOption())
		}
	}
	s.env, err = plain.Extend(options...)
	return s, err
}

// deviceType returns the types of a device and of an attribute. Attributes and capacities are maps of maps, by domain
// and by identifier. An attribute that may be a list is of the dynamic type, so that functions of lists take it.
func (o DeviceOptions) deviceType() (device, attribute *kube.DeclType) {
	attribute = bounded(kube.AnyType, maxAttribute)
	if o.Lists {
		attribute = bounded(kube.DynType, maxAttribute)
	}
	domain, identifier := bounded(kube.StringType, maxDomain), bounded(kube.StringType, maxIdentifier)
	byName := func(of *kube.DeclType) *kube.DeclType {
		return kube.NewMapType(domain, kube.NewMapType(identifier, of, maxAttributes), maxAttributes)
	}
	of := map[string]*kube.DeclType{
		"driver":     bounded(kube.StringType, maxDriver),
		"attributes": byName(attribute),
		"capacity":   byName(kube.QuantityDeclType),
	}
	if !o.NotShared {
		of["allowMultipleAllocations"] = bounded(kube.BoolType, 1)
	}
	fields := map[string]*kube.DeclField{}
	for name, t := range of {
		fields[name] = kube.NewDeclField(name, t, true, nil, nil)
	}
	return kube.NewObjectType(deviceTypeName, fields), attribute
}

// bounded returns a type with a limit of elements or bytes.
func bounded(of *kube.DeclType, most int64) *kube.DeclType {
	out := *of
	out.MaxElements = most
	return &out
}

// deviceSizes provides the cost estimator with the largest size of values below the variable device.
type deviceSizes struct{ device, attribute *kube.DeclType }

// EstimateSize implements checker.CostEstimator. A step of the path that is not a field is the name of an attribute.
func (s deviceSizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) == 0 || path[0] != "device" {
		return nil
	}
	at := s.device
	for _, step := range path[1:] {
		switch field := at.Fields[step]; {
		case step == "@keys":
			at = at.KeyType
		case step == "@items" || step == "@values":
			at = at.ElemType
		case field != nil:
			at = field.Type
		case at.ElemType == s.attribute:
			at = s.attribute
		default:
			return nil
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(at.MaxElements)}
}

// EstimateCallCost implements checker.CostEstimator.
func (deviceSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
