/** What the runtime takes from its surroundings and Hermes has not: imported before anything else. */

import "@bacons/text-decoder/install"; // TextDecoder, for the texts in manifests and models
import { install } from "react-native-quick-crypto"; // crypto.subtle: SHA-256

install();
