#pragma once
#include "tidepool/dtype.h"
