"""What OpenTelemetry's own schema says to requests in JSON, one a line on stdin; says how many spans there were."""
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# OTLP writes ids in hexadecimal, where JSON of protobuf has base64.
def ids(node):
    if isinstance(node, dict):
        return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ("traceId", "spanId", "parentSpanId") else ids(v)
                for k, v in node.items()}
    return [ids(n) for n in node] if isinstance(node, list) else node

spans = 0
for line in sys.stdin:
    request = json_format.ParseDict(ids(json.loads(line)), ExportTraceServiceRequest(), ignore_unknown_fields=False)
    for resource in request.resource_spans:
        assert any(a.key == "service.name" for a in resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8)
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
                assert span.name and span.kind in (1, 2)
                spans += 1
print(spans)
