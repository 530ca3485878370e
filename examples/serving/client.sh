#!/bin/sh
# Ask a server about one image, a file of 28 * 28 little-endian float32, with curl alone.
#
#     sh examples/serving/client.sh DIGIT.f32 [URL] [MODEL]
#
# TOKEN in the environment is the server's, CURL_CA_BUNDLE the certificate of one with TLS.
set -eu
image=$1 url=${2:-http://localhost:8000} model=${3:-digits}
authorization="Authorization: Bearer ${TOKEN:-none}"

curl --fail --silent --show-error --output /dev/null "$url/v2/health/ready"

# As JSON. `classification` asks for the best class, "probability:index:label", in place of all ten.
numbers=$(od -An -v -tf4 "$image" | tr -s ' \n' ',,')
wanted='"outputs": [{"name": "out/0", "parameters": {"classification": 1}}]'
tensor='"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32"'
numbers=${numbers#,}
echo "{\"inputs\": [{$tensor, \"data\": [${numbers%,}]}], $wanted}" |
  curl --fail --silent --show-error --header 'Content-Type: application/json' \
    --header "$authorization" --data-binary @- "$url/v2/models/$model/infer"
echo

# As bytes, which follow the JSON, whose length a header tells.
size=$(wc -c < "$image" | tr -d ' ')
head="{\"inputs\": [{$tensor, \"parameters\": {\"binary_data_size\": $size}}], $wanted}"
{ printf %s "$head"; cat "$image"; } |
  curl --fail --silent --show-error --header 'Content-Type: application/octet-stream' \
    --header "$authorization" \
    --header "Inference-Header-Content-Length: ${#head}" --data-binary @- \
    "$url/v2/models/$model/infer"
echo
