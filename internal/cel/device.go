package cel

import (
	"fmt"
	"sync"

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
	maxDeviceCost  = 1000000
	deviceTypeName = "kubernetes.DRADevice"
)

// CheckDeviceSelector checks an expression that selects devices. It returns the error in the expression ("" if it is
// valid), and whether a valid expression is too expensive. An error is one of the environment and not of the
// expression.
func CheckDeviceSelector(expression string) (fault string, tooComplex bool, err error) {
	d, err := deviceSelectors()
	if err != nil {
		return "", false, err
	}
	ast, issues := d.env.Compile(expression)
	if issues != nil {
		return "compilation failed: " + issues.String(), false, nil
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.AnyType) {
		return fmt.Sprintf("must evaluate to bool or the unknown type, not %s", out), false, nil
	}
	if _, err := d.env.Program(ast); err != nil {
		return "", false, err
	}
	cost, err := d.env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: d.sizes})
	return "", cost.Max > maxDeviceCost, err
}

// selectors is the environment of device selectors.
type selectors struct {
	env   *cel.Env
	sizes deviceSizes
}

// deviceSelectors builds the environment: that of new rules with the variable device and bindings. Conformance/cel
// compares it with the reference's, k8s.io/dynamic-resource-allocation/cel, with the default feature gates:
// allowMultipleAllocations exists (DRAConsumableCapacity), attributes that are lists do not (DRAListTypeAttributes).
var deviceSelectors = sync.OnceValues(func() (*selectors, error) {
	plain, err := newRules()
	if err != nil {
		return nil, err
	}
	device, attribute := deviceType()
	provider := kube.NewDeclTypeProvider(device)
	provider.SetRecognizeKeywordAsFieldName(true)
	types, err := provider.EnvOptions(plain.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	env, err := plain.Extend(append([]cel.EnvOption{ext.Bindings(ext.BindingsVersion(0)),
		cel.Variable("device", device.CelType())}, types...)...)
	return &selectors{env, deviceSizes{device, attribute}}, err
})

// deviceType returns the types of a device and of an attribute. Attributes and capacities are maps of maps, by domain
// and by identifier.
func deviceType() (device, attribute *kube.DeclType) {
	attribute = bounded(kube.AnyType, maxAttribute)
	domain, identifier := bounded(kube.StringType, maxDomain), bounded(kube.StringType, maxIdentifier)
	byName := func(of *kube.DeclType) *kube.DeclType {
		return kube.NewMapType(domain, kube.NewMapType(identifier, of, maxAttributes), maxAttributes)
	}
	fields := map[string]*kube.DeclField{}
	for name, of := range map[string]*kube.DeclType{
		"driver":                   bounded(kube.StringType, maxDriver),
		"allowMultipleAllocations": bounded(kube.BoolType, 1),
		"attributes":               byName(attribute),
		"capacity":                 byName(kube.QuantityDeclType),
	} {
		fields[name] = kube.NewDeclField(name, of, true, nil, nil)
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
